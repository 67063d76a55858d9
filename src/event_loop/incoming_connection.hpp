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

// The other end of a connection in memory: the request's first bytes come with it (IncomingConnection::received), and a
// reply that is complete when the machine first waits goes back in one piece. Only what comes later needs a socket.
// Destroyed without an answer, it has told its side that the connection is broken.
class MemoryPeer {
public:
    virtual ~MemoryPeer() = default;
    // Whether nobody wants a reply any longer.
    virtual bool gone() const = 0;
    // Whether more than what came with it is to be read, once connect() has been called.
    virtual bool more_follows() const = 0;
    // All that the program said before it closed the connection. Nothing may be called after it.
    virtual void reply(std::string bytes, request::Closing closing) = 0;
    // What follows in either direction goes over this socket; none when the system has no more of them. Nothing
    // may be called after it.
    virtual tinykvm::UniqueFd connect() = 0;
};

// A client: a connection that was accepted, or one of our own making.
struct IncomingConnection {
    tinykvm::UniqueFd fd; // or:
    std::unique_ptr<MemoryPeer> memory{};
    std::string received{}; // with `memory`: what the program can read at once
    std::uint32_t listener = 0;
    std::int32_t handle = -1; // not a client but a datagram, in `datagram`, for this socket
    tinykvm::Datagram datagram{};
    bool own =
        false; // one end of a Unix socket pair, or in memory; the program sees it as a connection to where it listens
    std::function<void(request::Outcome)>
        tell; // how it ended, unless well; before it is closed; empty where nobody asks
    SocketAddress
        peer; // as accept(2) told it: asked later, a client that has already gone has none; may be empty if own
};

} // namespace kvmserver
