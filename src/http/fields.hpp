// Header fields by the strict grammar of RFC 9110 section 5 and RFC 9112 section 5. For heads and trailers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/http/fault.hpp"

namespace kvmserver::http {

struct Field {
    std::string_view line; // all of it, with its CRLF
    std::string_view name;
    std::string_view value; // without surrounding white space
};

bool is_token(std::string_view text);
bool equal_nocase(std::string_view a, std::string_view b);
// Whether a comma-separated list has this item, ignoring case.
bool list_has(std::string_view list, std::string_view item);
std::string_view trimmed(std::string_view text);

// Splits lines that each end with CRLF. The fields point into `block`.
Fault scan_fields(std::string_view block, std::size_t max_fields, std::vector<Field>& fields);

// How the end of a body is found.
enum class BodyKind { none, length, chunked, until_close };
struct Framing {
    BodyKind kind = BodyKind::none;
    std::uint64_t length = 0;
};

// Reads Content-Length and Transfer-Encoding. Anything that two parsers could understand differently is a fault. `kind`
// stays `none` if neither is present.
Fault scan_framing(const std::vector<Field>& fields, int minor_version, Framing& framing);

} // namespace kvmserver::http
