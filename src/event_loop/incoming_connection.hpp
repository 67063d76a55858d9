// A client on its way to a machine.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/request/outcome.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/linux/handles.hpp"

namespace kvmserver {

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t bytes = 0;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// The client's end of a connection in memory. The request's first bytes come with it (IncomingConnection::received). If
// the reply is complete when the machine first waits, it goes back in one piece. Only what comes later needs a socket.
// The destructor, without a reply() or connect() before it, reports a broken connection.
class MemoryPeer {
public:
    virtual ~MemoryPeer() = default;
    // Whether nobody waits for a reply any longer.
    virtual bool gone() const = 0;
    // Whether the client has more bytes to read after connect().
    virtual bool more_follows() const = 0;
    // The reply, complete; the program has closed the connection. No call may follow.
    virtual void reply(std::string bytes, request::Closing closing) = 0;
    // Returns the socket for all further bytes in both directions, or an empty one if no descriptor is left. No call
    // may follow.
    virtual tinykvm::UniqueFd connect() = 0;
};

// A client: an accepted connection, one from our own HTTP front, or a datagram.
struct IncomingConnection {
    tinykvm::UniqueFd fd; // or `memory`
    std::unique_ptr<MemoryPeer> memory{};
    std::string received{}; // with `memory`: what the program can read at once
    std::uint32_t listener = 0;
    std::int32_t handle = -1; // not -1: a datagram for this socket, in `datagram`, and no connection
    tinykvm::Datagram datagram{};
    // A Unix socket pair or a connection in memory. The program sees its own listening address.
    bool own = false;
    // With `own`: a connection of a TCP function. Its client may be silent, and then counts as idle.
    bool stream = false;
    // Called with the outcome before the connection closes, unless that is ok. May be empty.
    std::function<void(request::Outcome)> report_outcome;
    // As accept(2) returned it: getpeername(2) fails once the client is gone. May be empty if `own`.
    SocketAddress peer;
    // Of a connection that is one of several (Arrivals). Called once it has closed. May be empty.
    std::function<void()> closed{};
    // The same: the longest that its client may wait for an answer, and the longest from request to reply; 0: no limit.
    std::uint64_t limit_ns = 0, total_ns = 0;
};

// Brings connections to a machine that is serving others. Belongs to that machine's thread.
class Arrivals {
public:
    virtual ~Arrivals() = default;
    virtual int fd() const = 0; // readable when next() may have something
    // Never blocks. Returns false if there is none.
    virtual bool next(IncomingConnection& out) = 0;
};

} // namespace kvmserver
