// The one machine of a function that keeps its state ([function] ephemeral = false). It is never reset and serves
// several connections at once, each over a channel of its own, so that the daemon treats it as it treats request
// machines.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/event_loop/event_loop.hpp"
#include "src/runner/connections/channel_connections.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

class KeptMachine final : private Arrivals {
public:
    // `suspends`: its state is saved now and then. `first`: told to the daemon with the first channel's readiness.
    // `ports`: those of ChannelConnections. `setup` must outlive this object. Throws HostError, UserError.
    KeptMachine(const Setup& setup, const std::shared_ptr<const tinykvm::MachineImage>& image, std::string name,
                bool suspends, ChannelConnections::First first, ChannelConnections::Ports ports);
    ~KeptMachine() override;

    // Any thread:
    void add(tinykvm::UniqueFd channel); // serve() closes it when the daemon does
    void end();                          // serve() returns when all channels are closed
    void stop();                         // serve() returns at once; what is in flight fails

    // On its own thread: serves until end() or stop(). Returns false if the program ended by itself; a line was
    // printed.
    bool serve();
    // After serve() has returned true: the machine, once it waits for connections and has none, and no longer belongs
    // to this object. Null if it does not get there within a few seconds; a line was printed, and serve() may be called
    // again unless `ended`.
    std::unique_ptr<tinykvm::Machine> take_quiet(bool& ended);

private:
    struct Channel {
        tinykvm::UniqueFd socket;
        std::unique_ptr<ChannelConnections> connections;
        std::uint64_t began_ns = 0; // its request
    };
    using Place = std::list<Channel>::iterator;

    int fd() const override { return epoll_.get(); }
    bool next(IncomingConnection& out) override;
    void take_new();
    void ready(Place channel);
    void close(Place channel);
    void finished(Place channel);
    void fail(LoopEnd how);

    const Setup& setup_;
    const std::string name_;
    const bool suspends_;
    const std::uint32_t listener_;
    ChannelConnections::First first_;
    const ChannelConnections::Ports ports_;
    Stopper stop_;
    tinykvm::UniqueFd epoll_, wake_;
    EventLoop loop_;
    tinykvm::MachineEnv env_;
    std::unique_ptr<tinykvm::Machine> machine_;
    std::list<Channel> channels_;
    std::uint64_t exits_ = 0, cpu_ns_ = 0; // that were reported; what several requests share is told of one of them
    bool failing_ = false;
    std::mutex mutex_;
    std::vector<tinykvm::UniqueFd> new_; // guarded by it, as is:
    bool ending_ = false;
};

} // namespace kvmserver
