// The event loop of one machine: moves bytes between its connections and real sockets, waits for what it waits for.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/event_loop/listeners.hpp"
#include "src/event_loop/refusals.hpp"
#include "src/event_loop/spent_time.hpp"
#include "src/event_loop/stop.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

enum class LoopEnd {
    stopped,   // the machine stopped for good: see stop()
    quiescent, // (only when asked for) every thread waits, the listener among what is waited for
    closed,    // (one connection) the connection is over
    timeout,   // a time limit is used up: see overrun()
    requested, // SIGTERM, SIGINT
};

class EventLoop final : public tinykvm::MachineHost {
public:
    // `listeners` serves the program's bind and listen; connections are taken from it when `accepting`.
    EventLoop(Listeners& listeners, std::function<void(const std::string&)> note,
              const Stopper& stop = StopSignal::instance());
    // With listeners of its own: what a machine that is reset opens and closes is no other's concern. The image's it
    // has not.
    enum class Own { real, dry };
    EventLoop(Own own, std::function<void(const std::string&)> note, const Stopper& stop = StopSignal::instance());
    void close_own_listeners(); // with the reset
    ~EventLoop() override;

    // Runs the machine until it stops, or until the listed ends.
    struct Until {
        bool quiescent = false;
        bool accepting = false;
        bool one_connection = false; // until slot 0 is closed and sent
        bool one_datagram =
            false; // until what was given is read and nothing that this invocation has opened is waited for
        std::uint64_t limit_ns = 0;   // of what the program spends without a byte moving (SpentTime); 0: none
        bool all_waits_count = false; // against it, from now on; else those for its client or for nothing
        std::uint64_t total_ns = 0;   // of a request, whatever it does; 0: none
    };
    LoopEnd run(tinykvm::Machine& machine, const Until& until);
    const tinykvm::Stop& stop() const { return stop_; }
    Overrun overrun() const { return overrun_; } // after LoopEnd::timeout

    // Bytes that may come with a connection in memory.
    static constexpr std::size_t kMaxReceived = tinykvm::abi::kRxBytes;
    // Gives the machine a connection; false when it has no free slot, or no room for what came with it.
    bool attach(tinykvm::Machine& machine, IncomingConnection client);
    void give(tinykvm::Machine& machine, std::int32_t handle, tinykvm::Datagram datagram);
    void drop_connections(bool reset);
    std::uint64_t bytes_moved() const { return moved_; }
    std::uint64_t connections_attached() const { return attached_; }

    int bind(tinykvm::ListenerState& socket) override;
    int listen(tinykvm::ListenerState& socket, int backlog) override;
    void unlisten(std::uint32_t id) override;
    tinykvm::BoundSocket take_bound(std::uint32_t id) override;
    void flush(tinykvm::Machine& machine, std::uint32_t slot) override;
    void poll(tinykvm::Machine& machine) override;
    void note(const std::string& line) override { note_(line); }
    void refused(const std::string& line) override {
        if (keep_refusals_)
            refusals_.add(line);
    }
    // Kept from the start until the machine serves.
    void keep_refusals(bool keep) { keep_refusals_ = keep; }
    void set_exists(std::function<bool(const std::string&)> exists) { refusals_.set_exists(std::move(exists)); }
    const Refusals& refusals() const { return refusals_; }
    bool should_stop() override;

private:
    struct Client {
        bool open = false;
        tinykvm::UniqueFd fd;
        std::unique_ptr<MemoryPeer> memory; // until there is a socket
        std::uint32_t listener = 0;
        bool own = false;      // one request, of our own front's
        bool asked = false;    // it has sent something since the program last did
        bool answered = false; // the program has since it last did
        bool eof = false;      // the guest has been told
        bool gone = false;     // and it takes nothing any more either
        bool failed = false;
        bool shut = false; // our FIN is out
    };
    int tell_failure(int result, const std::vector<std::uint8_t>& address);
    // True when the guest has something new to see.
    bool exchange(tinykvm::Machine& machine);
    bool deliver(tinykvm::Machine& machine, std::uint32_t slot, const tinykvm::ConnView& view, std::string_view bytes);
    void reply_whole(tinykvm::Machine& machine, std::uint32_t slot, const tinykvm::ConnView& view);
    bool have_socket(tinykvm::Machine& machine, std::uint32_t slot);
    bool send_pending(tinykvm::Machine& machine, std::uint32_t slot, tinykvm::ConnView& view);
    bool receive(tinykvm::Machine& machine, std::uint32_t slot, tinykvm::ConnView& view);
    bool accept_some(tinykvm::Machine& machine);
    bool wait(tinykvm::Machine& machine, const Until& until, LoopEnd& end);
    void moved(std::size_t bytes);
    void heard(Client& c);
    std::uint64_t spent(std::uint64_t now_ns);
    std::uint64_t end_of_request() const;
    bool over_limit(std::uint64_t now_ns);
    // When a wait that begins now would use up a limit.
    std::uint64_t limit_end(std::uint64_t now_ns, Overrun counts);
    Overrun what_counts(tinykvm::Machine& machine, const tinykvm::Machine::Wait& wait,
                        const std::vector<tinykvm::Machine::WaitHandle>& handles) const;
    void close_client(tinykvm::Machine& machine, std::uint32_t slot, bool reset);
    Client& client(std::uint32_t slot);

    std::unique_ptr<Listeners> own_listeners_;
    Listeners& listeners_;
    const Stopper& stop_request_;
    std::function<void(const std::string&)> note_;
    std::vector<Client> clients_; // by slot
    std::size_t open_ = 0;
    tinykvm::Stop stop_;
    std::uint64_t moved_ = 0, attached_ = 0;
    Until until_;
    SpentTime spent_;
    Overrun overrun_ = Overrun::none;
    std::uint64_t request_begin_ns_ = 0;
    Refusals refusals_;
    bool keep_refusals_ = false;
    bool accepting_ = false;
    bool contract_broken_ = false;
};

} // namespace kvmserver
