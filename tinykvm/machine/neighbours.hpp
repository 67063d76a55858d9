// Programs in other machines of this process, which a program can connect to without a socket on the host's network.
#pragma once
#include <sys/socket.h>

#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

class Neighbours {
public:
    virtual ~Neighbours() = default;
    struct Address {
        sockaddr_storage storage{};
        socklen_t bytes = 0;
        const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    };
    // Connects to the program that listens at `to`, a Unix path being absolute; it sees `from` as its peer. Returns a
    // non-blocking stream, or an empty one with errno set: ENOENT if no neighbour listens there. Thread-safe.
    virtual UniqueFd connect(const Address& to, const Address& from) = 0;
};

} // namespace tinykvm
