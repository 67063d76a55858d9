// Carries the requests of a Client to its server.
#pragma once
#include <cstddef>
#include <memory>

#include "src/remote/client.hpp"

namespace kvmserver::remote {

inline constexpr std::size_t kMaxReply = 256u << 20; // bytes of a body that is kept
inline constexpr int kConnectSeconds = 15;

// Keeps its connection. Belongs to one thread.
class Transport {
public:
    virtual ~Transport() = default;
    virtual Reply ask(const Ask& ask) = 0; // see Client::ask()
};

// `server` must outlive the transport.
std::unique_ptr<Transport> curl_transport(const Server& server); // curl_transport.cpp: all servers

} // namespace kvmserver::remote
