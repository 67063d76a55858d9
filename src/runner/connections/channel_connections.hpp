// A machine's requests as the daemon hands them to it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/event_loop/stop.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/runner/connections/connection_source.hpp"

namespace kvmserver {

class ChannelConnections final : public ConnectionSource {
public:
    // What the first machine of a process tells with its first `ready`: the time since `begin_ns` (0:
    // nothing).
    struct First {
        std::uint64_t begin_ns = 0, hot_bytes = 0;
    };
    // `listener`: of the program, whose connections these are to be. next() waits for the channel alone: whoever
    // requests the stop also shuts the channel down for reading (shutdown(2)).
    ChannelConnections(int channel, std::uint32_t listener, First first, const Stopper& stop);
    ~ChannelConnections() override;
    bool next(IncomingConnection& out) override;
    void served(const Served& served) override;

    // A reply that is to be told with the next `ready`.
    struct Held {
        std::string bytes;
        request::Closing closing;
    };

private:
    bool say_ready();
    bool take(const protocol::Received& request, IncomingConnection& out);
    bool take_socket(tinykvm::UniqueFd socket, IncomingConnection& out) const;

    int channel_;
    First first_;
    std::uint32_t listener_;
    const Stopper& stop_;
    protocol::Message ready_;
    std::uint64_t begin_cpu_ns_ = 0; // of this thread, when it took the request
    std::optional<Held> held_;
    std::unique_ptr<char[]> room_; // for what comes with a request; not touched before
};

} // namespace kvmserver
