// Base64 (RFC 4648, section 4), in which etcd's gateway writes keys and values.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace kvmserver::etcd {

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text); // nullopt: it is none, with its padding

} // namespace kvmserver::etcd
