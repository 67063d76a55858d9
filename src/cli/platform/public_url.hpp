// Where a client finds a function: the URL that commands show.
#pragma once
#include <cstdint>
#include <string>

namespace kvmserver::cli::platform {

// Where a daemon serves clients.
struct Listening {
    std::string address = "127.0.0.1:8080"; // IP:PORT, or a socket's path; the default is that of `serve`
    std::uint64_t port = 8080;              // 0: a Unix socket
    bool tls = false;
};

struct PublicUrl {
    std::string url;
    std::string host; // what the client must send as its Host header, where the URL does not name it; "": nothing
    std::string unix; // the path of the socket; "": TCP
    std::string text() const;
};

// `server` is the host of the daemon as this host knows it: of --remote; "" if the daemon is on this host.
PublicUrl public_url(const std::string& route, const Listening& listening, const std::string& server);

// "http://127.0.0.1:8080" for "http://hello.localhost:8080", if names below `localhost` have no address here; "" if
// they have, or the URL names another host. curl and browsers know such names by themselves, other programs do not.
bool knows_names_below_localhost(const char* nsswitch_file);
std::string url_by_address(const PublicUrl& shown);

} // namespace kvmserver::cli::platform
