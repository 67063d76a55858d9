// The event loop of one machine: moves bytes between its connections and real sockets, and polls what it waits for.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
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
    stopped,   // the machine has ended: see stop()
    quiescent, // (with Until::quiescent) every thread is blocked and one waits for the listener, or (with
               // Until::ready) for a call of a function
    closed,    // (with Until::one_connection or one_datagram) the invocation is over
    returned,  // (with Until::returned) the function has returned
    stuck,     // (with Until::ready, returned or client_said_all) every thread waits for what will never come
    timeout,   // a time limit is used up: see overrun()
    requested, // SIGTERM, SIGINT
};

inline constexpr std::uint64_t kForever = ~std::uint64_t{0}; // no deadline

class EventLoop final : public tinykvm::MachineHost {
public:
    // `listeners` implements the program's bind and listen. With Until::accepting the loop also accepts from it.
    EventLoop(Listeners& listeners, std::function<void(const std::string&)> note,
              const Stopper& stop = StopSignal::instance());
    // With private listeners, for a machine that is reset: what an invocation opens and closes affects no other
    // machine. It does not have the listeners of the image. dry: nothing could come from outside, so that nothing
    // really listens (Listeners::set_dry); the machine's own connections do not need that.
    enum class Own { real, dry };
    EventLoop(Own own, std::function<void(const std::string&)> note, const Stopper& stop = StopSignal::instance());
    void close_own_listeners(); // part of the reset
    ~EventLoop() override;

    // When run() returns, apart from the machine's own end.
    struct Until {
        bool quiescent = false;
        bool ready = false;    // until a thread is ready for calls of functions and all others wait
        bool returned = false; // until the function that was called (Machine::call) has returned
        bool accepting = false;
        bool one_connection = false; // until slot 0 is closed and its bytes are sent
        // Nothing follows what that connection's client has sent. Only a dry loop can tell that nothing else comes.
        bool client_said_all = false;
        // Until the given datagram has been read and the machine waits for nothing that this invocation opened.
        bool one_datagram = false;
        std::uint64_t limit_ns = 0; // limit on the program's time without progress (SpentTime); 0: none
        // From now on all waits count against it, not only those for its client or for nothing.
        bool all_waits_count = false;
        std::uint64_t total_ns = 0; // limit on the whole request; 0: none
        std::uint64_t cpu_ns = 0;   // limit on its CPU time, without `arrivals`; 0: none
        // With `accepting`: more connections. Those that have limits of their own (IncomingConnection) have no others.
        Arrivals* arrivals = nullptr;
    };
    // stop() and overrun() then tell more.
    LoopEnd run(tinykvm::Machine& machine, const Until& until);
    const tinykvm::Stop& stop() const { return stop_; }
    Overrun overrun() const { return overrun_; } // after LoopEnd::timeout

    // Most bytes that may come with a connection in memory.
    static constexpr std::size_t kMaxReceived = tinykvm::abi::kRxBytes;
    // Gives the machine a connection. Returns false if no slot is free or its bytes do not fit.
    bool attach(tinykvm::Machine& machine, IncomingConnection client);
    // Gives the machine a datagram for one of its image's sockets. This begins an invocation.
    void give(tinykvm::Machine& machine, std::int32_t handle, tinykvm::Datagram datagram);
    // Closes all connections. With `reset` the clients see a reset.
    void drop_connections(bool reset);
    // With a debugger: the program stops where it gets a connection.
    void stop_at_arrival() { stop_at_arrival_ = true; }
    // Closes those that came by Arrivals, with this outcome.
    void fail_connections(request::Outcome outcome);
    std::uint64_t bytes_moved() const { return moved_; }
    std::uint64_t connections_attached() const { return attached_; }

    // What the program calls by numbers, as MachineHost::call_host.
    using HostFunctions = std::function<std::optional<std::int64_t>(tinykvm::Machine&, std::uint64_t number,
                                                                    std::span<const std::uint64_t, 5> arguments)>;
    void set_host_functions(HostFunctions functions) { host_functions_ = std::move(functions); }

    // MachineHost: called by the machine while it runs.
    std::optional<std::int64_t> call_host(tinykvm::Machine& machine, std::uint64_t number,
                                          std::span<const std::uint64_t, 5> arguments) override {
        return host_functions_ ? host_functions_(machine, number, arguments) : std::nullopt;
    }
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
    void refused_execve() override {
        if (keep_refusals_)
            refusals_.none_would_help();
    }
    const tinykvm::OutputSink* output() const override { return output_ ? &output_ : nullptr; }
    // Gives the program's output from now on to `sink`; empty: to the process's stdout and stderr.
    void set_output(tinykvm::OutputSink sink) { output_ = std::move(sink); }
    // Refusals are kept until the machine serves.
    void keep_refusals(bool keep) { keep_refusals_ = keep; }
    void set_exists(std::function<bool(const std::string&)> exists) { refusals_.set_exists(std::move(exists)); }
    const Refusals& refusals() const { return refusals_; }
    void connected(tinykvm::Machine& machine, std::uint32_t slot, tinykvm::UniqueFd stream) override;
    bool should_stop() override;

private:
    struct Client {
        bool open = false;
        tinykvm::UniqueFd fd;
        std::unique_ptr<MemoryPeer> memory; // until a socket is needed
        std::uint32_t listener = 0;
        bool outbound = false;    // to a neighbour: the program connected
        bool one_request = false; // from our own HTTP front
        bool asked = false;       // it has sent something since the program last did
        bool answered = false;    // the program has sent something since it last did
        bool eof = false;         // the guest has been told of the end of its data
        bool gone = false;        // after eof, the other direction was closed too
        bool failed = false;
        bool shut = false; // our FIN has been sent
        // Of IncomingConnection:
        std::function<void(request::Outcome)> report_outcome;
        std::function<void()> closed;
        std::uint64_t limit_ns = 0, total_ns = 0;
        std::uint64_t began_ns = 0, heard_ns = 0; // its request; the last that came from it
    };
    bool full() const { return open_ + outbound_ >= tinykvm::abi::kMaxConns; }
    // Whether the invocation's client has gone and what the program wrote to neighbours before that has been sent.
    bool is_over(tinykvm::Machine& machine) const;
    bool waits_for_neighbour(tinykvm::Machine& machine) const;
    int report_failure(int result, const std::vector<std::uint8_t>& address);
    // Returns true if the guest has something new to see.
    bool exchange(tinykvm::Machine& machine);
    bool deliver(tinykvm::Machine& machine, std::uint32_t slot, const tinykvm::ConnView& view, std::string_view bytes);
    void reply_whole(tinykvm::Machine& machine, std::uint32_t slot, const tinykvm::ConnView& view);
    bool have_socket(tinykvm::Machine& machine, std::uint32_t slot);
    bool send_pending(tinykvm::Machine& machine, std::uint32_t slot, tinykvm::ConnView& view);
    bool receive(tinykvm::Machine& machine, std::uint32_t slot, tinykvm::ConnView& view);
    bool accept_some(tinykvm::Machine& machine);
    bool wait(tinykvm::Machine& machine, const Until& until, LoopEnd& end);
    void moved(std::size_t bytes); // progress: restarts the time limit
    void heard(Client& c);         // the client has sent something
    std::uint64_t spent(std::uint64_t now_ns);
    std::uint64_t end_of_request() const;
    void begin_request(std::uint64_t now_ns);
    bool over_cpu();
    bool over_limit(std::uint64_t now_ns);
    // When a wait that begins now would use up a limit.
    std::uint64_t limit_end(std::uint64_t now_ns, Overrun counts);
    Overrun what_counts(tinykvm::Machine& machine, const tinykvm::Machine::Wait& wait,
                        const std::vector<tinykvm::Machine::WaitHandle>& handles) const;
    void free_lost(tinykvm::Machine& machine);
    void close_client(tinykvm::Machine& machine, std::uint32_t slot, bool reset);
    bool end_overdue(tinykvm::Machine& machine, bool stuck);
    std::uint64_t next_overdue(bool stuck) const;
    bool hangs(std::uint64_t now_ns) const;
    Client& client(std::uint32_t slot);

    std::unique_ptr<Listeners> own_listeners_;
    Listeners& listeners_;
    const bool dry_ = false;
    const Stopper& stop_request_;
    std::function<void(const std::string&)> note_;
    std::vector<Client> clients_;         // by slot
    std::size_t open_ = 0, outbound_ = 0; // connections of clients, and to neighbours
    tinykvm::Stop stop_;
    std::uint64_t moved_ = 0, attached_ = 0;
    Until until_;
    SpentTime spent_;
    Overrun overrun_ = Overrun::none;
    std::uint64_t request_begin_ns_ = 0;
    std::optional<std::uint64_t> cpu_begin_ns_; // this thread's CPU time when the request began
    std::uint64_t alive_ns_ = 0;                // when the machine last waited, or sent something
    Refusals refusals_;
    tinykvm::OutputSink output_;
    HostFunctions host_functions_;
    bool keep_refusals_ = false;
    bool accepting_ = false;
    bool stop_at_arrival_ = false;
    bool contract_broken_ = false;
};

} // namespace kvmserver
