// Parses request targets and their Host (RFC 9112 sections 3.2 and 3.3).
#pragma once
#include <string_view>

#include "src/http/fault.hpp"

namespace kvmserver::http {

struct Target {
    std::string_view authority; // "" unless the target is absolute
    std::string_view path;      // from the first '/', with the query; "*" for OPTIONS *
    bool secure = false;        // https://
    bool absolute = false;
};

Fault scan_target(std::string_view method, std::string_view target, Target& out);
// host[:port] of a Host header or an absolute target.
bool valid_authority(std::string_view text);
bool same_authority(std::string_view a, std::string_view b, bool secure);

} // namespace kvmserver::http
