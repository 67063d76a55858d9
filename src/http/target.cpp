#include "src/http/target.hpp"

#include "src/http/fields.hpp"

namespace kvmserver::http {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Bytes from 0x80 on are allowed: programs see them as they were sent, and they cannot end a token.
bool target_chars(std::string_view text) {
    for (const char c : text)
        if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f || c == '#')
            return false;
    return true;
}

bool valid_port(std::string_view text) {
    unsigned value = 0;
    if (text.size() > 5)
        return false;
    for (const char c : text) {
        if (!is_digit(c))
            return false;
        value = value * 10 + static_cast<unsigned>(c - '0');
    }
    return value <= 65535; // RFC 3986 allows an empty port
}

bool valid_name(std::string_view name) {
    for (std::size_t i = 0; i < name.size(); ++i) {
        const char c = name[i];
        if (c == '%') {
            if (i + 2 >= name.size() || !is_hex(name[i + 1]) || !is_hex(name[i + 2]))
                return false;
            i += 2;
        } else if (!is_digit(c) && !is_alpha(c) &&
                   std::string_view("-._~!$&'()*+;=").find(c) == std::string_view::npos) {
            return false; // includes the comma: a parser that joins headers would see two hosts
        }
    }
    return true;
}

std::string_view without_default_port(std::string_view authority, bool secure) {
    const std::size_t colon = authority.rfind(':');
    if (colon == std::string_view::npos || authority.find(']', colon) != std::string_view::npos)
        return authority;
    const std::string_view port = authority.substr(colon + 1);
    return port.empty() || port == (secure ? "443" : "80") ? authority.substr(0, colon) : authority;
}

} // namespace

bool valid_authority(std::string_view text) {
    std::string_view port;
    if (text.starts_with('[')) {
        const std::size_t end = text.find(']');
        if (end == std::string_view::npos || end < 3)
            return false;
        for (const char c : text.substr(1, end - 1))
            if (!is_hex(c) && c != ':' && c != '.')
                return false;
        port = text.substr(end + 1);
        if (!port.empty() && port.front() != ':')
            return false;
        return valid_port(port.empty() ? port : port.substr(1));
    }
    const std::size_t colon = text.find(':');
    if (colon != std::string_view::npos) {
        port = text.substr(colon + 1);
        text = text.substr(0, colon);
        if (text.empty())
            return false;
    }
    return valid_name(text) && valid_port(port);
}

bool same_authority(std::string_view a, std::string_view b, bool secure) {
    return equal_nocase(without_default_port(a, secure), without_default_port(b, secure));
}

Fault scan_target(std::string_view method, std::string_view target, Target& out) {
    out = {};
    if (method == "CONNECT")
        return {501, "no-proxy", "This server is not a proxy: CONNECT is not served."};
    if (target.empty() || !target_chars(target))
        return {400, "bad-target", "The request target is empty or holds a character that it may not have."};
    if (target.front() == '/') {
        out.path = target;
        return {};
    }
    if (target == "*") {
        out.path = target;
        return method == "OPTIONS" ? Fault{} : Fault{400, "bad-target", "Only OPTIONS may ask for *."};
    }
    const std::size_t scheme = target.find("://");
    if (scheme == std::string_view::npos)
        return {400, "bad-target", "The request target is neither a path nor a URL."};
    out.absolute = true;
    out.secure = equal_nocase(target.substr(0, scheme), "https");
    if (!out.secure && !equal_nocase(target.substr(0, scheme), "http"))
        return {400, "bad-target", "The request target is a URL of neither http nor https."};
    const std::string_view rest = target.substr(scheme + 3);
    const std::size_t path = rest.find_first_of("/?");
    out.authority = rest.substr(0, path);
    out.path = path == std::string_view::npos ? std::string_view("/") : rest.substr(path);
    if (out.authority.empty() || !valid_authority(out.authority))
        return {400, "bad-target", "The host in the request target is not valid."};
    return {};
}

} // namespace kvmserver::http
