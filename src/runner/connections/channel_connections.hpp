// The requests that the daemon sends to one machine over its channel.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/event_loop/stop.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/runner/connections/connection_source.hpp"

namespace kvmserver {

class ChannelConnections final : public ConnectionSource {
public:
    // Reported with the first `ready` of a process's first machine: the time since `begin_ns` (0: nothing to report)
    // and the bytes loaded.
    struct First {
        std::uint64_t begin_ns = 0, hot_bytes = 0;
    };
    using Ports = std::map<std::uint16_t, std::uint32_t>; // the program's listeners by the port it chose
    // `listener`: the program's listener that the connections belong to, but for those of a TCP function to one of
    // `ports`. next() waits for the channel only, so whoever
    // requests the stop must also shut the channel down for reading (shutdown(2)).
    ChannelConnections(int channel, std::uint32_t listener, First first, const Stopper& stop, Ports ports = {});
    ~ChannelConnections() override;
    bool next(IncomingConnection& out) override;
    void served(const Served& served) override;
    // next() calls `act` once when it has waited for so long.
    void when_idle(std::chrono::milliseconds after, std::function<void()> act);
    // For a machine that serves several channels at once, instead of next(): neither blocks.
    // Tells the daemon that the channel can take a request. Returns false if it is closed.
    bool say_ready();
    void served(const Served& served, std::uint64_t cpu_ns);
    enum class Got { request, nothing, end };
    Got take_next(IncomingConnection& out);

    // A reply to be sent together with the next `ready`.
    struct Held {
        std::string bytes;
        request::Closing closing;
    };

private:
    void wake_after(std::chrono::milliseconds after) const;
    void describe(const protocol::Received& request, IncomingConnection& out);
    bool take(const protocol::Received& request, IncomingConnection& out);
    bool take_socket(tinykvm::UniqueFd socket, IncomingConnection& out) const;
    void take_stream(protocol::Received request, IncomingConnection& out) const;

    int channel_;
    First first_;
    std::uint32_t listener_;
    const Stopper& stop_;
    std::chrono::milliseconds idle_after_{0}; // 0: never
    std::function<void()> idle_;
    bool idled_ = false; // since the last request
    const Ports ports_;
    protocol::Message ready_;
    std::uint64_t begin_cpu_ns_ = 0; // this thread's CPU time when it took the request
    std::optional<Held> held_;
    std::unique_ptr<char[]> room_; // buffer for the bytes of a request; pages untouched until needed
};

} // namespace kvmserver
