// Finds the name of the host that a TLS client asks for (SNI), without answering it: RFC 8446 section 4.1.2 and
// RFC 6066 section 3.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kvmserver::http {

// A ClientHello of a browser has 0.5 to 2 kB. What does not end within this has no name for us.
inline constexpr std::size_t kMaxHello = 17'000;

// `bytes`: what the client has sent so far. Nothing: more is needed. "": it asks for no host, or speaks no TLS, or not
// as it should, about which a TLS library has more to say. The name is in lower case and has the characters of a host
// name only.
std::optional<std::string> server_name_of(std::string_view bytes);

} // namespace kvmserver::http
