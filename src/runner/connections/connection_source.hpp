// Where request machines get their clients from.
#pragma once
#include <cstdint>

#include "src/event_loop/incoming_connection.hpp"

namespace kvmserver {

// What serving a client cost.
struct Served {
    std::uint64_t exec_ns = 0, reset_ns = 0;
    std::uint64_t pages_copied = 0, pages_dropped = 0, exits = 0;
};

// Thread-safe if several machines share one.
class ConnectionSource {
public:
    virtual ~ConnectionSource() = default;
    // Called when the machine is clean. Blocks until a client has sent something; false when the server is to stop.
    virtual bool next(IncomingConnection& out) = 0;
    // Called on the machine's thread when it is clean again.
    virtual void served(const Served&) {}
};

} // namespace kvmserver
