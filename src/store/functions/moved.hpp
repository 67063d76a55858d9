// A function that was migrated: another daemon serves it, and this one forwards.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace kvmserver::store {

struct Moved {
    std::string to;            // URL of the other daemon's API, or the path of its socket
    std::string forward;       // its public listener: "http://HOST:PORT" or "https://HOST:PORT"
    std::uint64_t version = 0; // there
    std::string ca_file;       // authorities that are trusted besides the host's, PEM; may be ""
    // Until it is known that it has taken over; the token is for asking it again, and "" afterwards.
    bool pending = false;
    std::string token;
    bool operator==(const Moved&) const = default;
    void check() const; // throws BadValue
};

// Of "http://HOST:PORT" or "https://HOST:PORT"; an IPv6 address is in brackets there, and without them here. Throws
// BadValue.
struct ForwardAddress {
    std::string host;
    std::uint16_t port = 0;
    bool tls = false;
};
ForwardAddress forward_address(std::string_view url);

std::string to_text(const Moved& moved);        // JSON
Moved moved_from_text(const std::string& text); // throws BadValue

} // namespace kvmserver::store
