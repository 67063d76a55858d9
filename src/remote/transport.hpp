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
// For all servers. Loads libcurl.
std::unique_ptr<Transport> curl_transport(const Server& server);
// For a server with a socket, and what has no Ask::source.
std::unique_ptr<Transport> socket_transport(const Server& server);

} // namespace kvmserver::remote
