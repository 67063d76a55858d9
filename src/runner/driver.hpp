// Drives one machine: moves bytes between its connections and real sockets, waits for what it waits for.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/runner/listeners.hpp"
#include "src/runner/stop.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

enum class DriveEnd {
    stopped,   // the machine stopped for good: see stop()
    quiescent, // (only when asked for) every thread waits, the listener among what is waited for
    closed,    // (one connection) the connection is over
    timeout,   // deadline passed
    requested, // SIGTERM, SIGINT
};

class Driver final : public tinykvm::MachineHost {
public:
    // `listeners` serves the program's bind and listen; connections are taken from it when `accepting`.
    Driver(Listeners& listeners, std::function<void(const std::string&)> note, const Stopper& stop = StopSignal::instance());
    // With listeners of its own: what a machine that is reset opens and closes is no other's concern. The image's it has not.
    enum class Own { real, dry };
    Driver(Own own, std::function<void(const std::string&)> note, const Stopper& stop = StopSignal::instance());
    void close_own_listeners(); // with the reset
    ~Driver() override;

    // Runs the machine until it stops, or until the listed ends.
    struct Until {
        bool quiescent = false;
        bool accepting = false;
        bool one_connection = false;      // until slot 0 is closed and sent
        std::uint64_t idle_limit_ns = 0;  // without a byte moving; 0: none
        std::uint64_t deadline_ns = 0;    // host monotonic; 0: none
    };
    DriveEnd drive(tinykvm::Machine& machine, const Until& until);
    const tinykvm::Stop& stop() const { return stop_; }

    // Bytes that may come with a connection in memory.
    static constexpr std::size_t kMostReceived = tinykvm::abi::kRxBytes;
    // Gives the machine a connection; false when it has no free slot, or no room for what came with it.
    bool attach(tinykvm::Machine& machine, Arrival client);
    void drop_connections(bool reset);
    std::uint64_t bytes_moved() const { return moved_; }
    std::uint64_t connections_attached() const { return attached_; }

    int bind(tinykvm::ListenerState& socket) override;
    int listen(tinykvm::ListenerState& socket, int backlog) override;
    void unlisten(std::uint32_t id) override;
    tinykvm::UniqueFd take_bound(std::uint32_t id) override;
    void flush(tinykvm::Machine& machine, std::uint32_t slot) override;
    void poll(tinykvm::Machine& machine) override;
    void note(const std::string& line) override { note_(line); }
    bool should_stop() override;

private:
    struct Client {
        bool open = false;
        tinykvm::UniqueFd fd;
        std::unique_ptr<MemoryPeer> memory; // until there is a socket
        std::uint32_t listener = 0;
        bool eof = false;       // the guest has been told
        bool failed = false;
        bool shut = false;      // our FIN is out
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
    bool wait(tinykvm::Machine& machine, const Until& until, std::uint64_t limit_ns, DriveEnd& end);
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
    std::uint64_t last_progress_ns_ = 0;
    std::uint64_t run_deadline_ns_ = 0;
    bool accepting_ = false;
    bool contract_broken_ = false;
};

} // namespace kvmserver
