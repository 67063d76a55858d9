#include "tinykvm/linux/granted.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"

namespace tinykvm {

namespace {

using Bytes = std::array<std::uint8_t, 16>;

constexpr unsigned kMappedBits = 96; // prefix length of ::ffff:0:0/96, the IPv4-mapped addresses

[[noreturn]] void bad(const std::string& key, const std::string& text, const std::string& why) {
    throw UserError(ExitCode::usage, fmt::format("{}: \"{}\": {}", key, text, why));
}

std::optional<unsigned> number(std::string_view text, unsigned most) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value > most)
        return std::nullopt;
    return value;
}

void clear_behind(Bytes& bytes, unsigned bits) {
    for (unsigned bit = bits; bit < 128; ++bit)
        bytes[bit / 8] &= static_cast<std::uint8_t>(~(0x80u >> bit % 8));
}

// Parses "1.2.3.4/8", "fd00::/8", or an address without a prefix length. False if `host` is none of these.
bool parse_range(const std::string& key, const std::string& text, std::string_view host, NetGrant& grant) {
    const auto slash = host.find('/');
    const std::string address(host.substr(0, slash));
    in_addr four{};
    in6_addr six{};
    unsigned most = 0;
    if (::inet_pton(AF_INET, address.c_str(), &four) == 1) {
        grant.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        std::copy_n(reinterpret_cast<const std::uint8_t*>(&four), sizeof four, grant.bytes.begin() + kMappedBits / 8);
        most = 32;
    } else if (::inet_pton(AF_INET6, address.c_str(), &six) == 1) {
        std::copy_n(reinterpret_cast<const std::uint8_t*>(&six), sizeof six, grant.bytes.begin());
        most = 128;
    } else if (slash != host.npos) {
        bad(key, text, fmt::format("\"{}\" is not an IP address", address));
    } else {
        return false;
    }
    const auto length = slash == host.npos ? most : number(host.substr(slash + 1), most);
    if (!length)
        bad(key, text, fmt::format("the number after '/' must be from 0 to {}", most));
    grant.bits = 128 - most + *length;
    const Bytes written = grant.bytes;
    clear_behind(grant.bytes, grant.bits);
    if (written != grant.bytes)
        bad(key, text, fmt::format("the address has bits beyond its first {}", *length));
    return true;
}

bool is_name(std::string_view text) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    return std::ranges::any_of(text, letter) && std::ranges::all_of(text, [&](char c) {
               return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
           });
}

NetGrant range(const Bytes& bytes, unsigned bits, std::uint16_t port) {
    NetGrant grant;
    grant.bytes = bytes;
    grant.bits = bits;
    grant.port = port;
    return grant;
}

// 127.0.0.0/8, ::1, and the addresses of all interfaces.
std::vector<NetGrant> own_addresses(std::uint16_t port) {
    std::vector<NetGrant> own{range({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127}, kMappedBits + 8, port),
                              range({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, port)};
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0)
        throw_errno("getifaddrs"); // without them, access to this host's own addresses could not be denied
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const ifaddrs* at = list; at; at = at->ifa_next) {
        if (!at->ifa_addr)
            continue;
        const socklen_t bytes = at->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (const auto address = net_address(at->ifa_addr, bytes))
            own.push_back(range(address->bytes, 128, port));
    }
    return own;
}

} // namespace

NetGrant parse_net_grant(const std::string& key, const std::string& text) {
    NetGrant grant;
    grant.text = text;
    if (text.starts_with(kUnixRule)) {
        grant.name = text.substr(std::string_view(kUnixRule).size());
        const PathText path = cut_path(grant.name);
        const bool abstract = grant.name.size() > 1 && grant.name.front() == '@';
        if ((!path.absolute && !abstract) || path.dots)
            bad(key, text, "write unix:/PATH without \"..\", or unix:@NAME for an abstract name");
        grant.kind = path.absolute ? NetGrant::Kind::unix_path : NetGrant::Kind::unix_name;
        if (path.absolute)
            grant.name = join_parts(path.parts);
        return grant;
    }
    std::string_view host = text, port;
    if (host.starts_with('[')) {
        const auto close = host.find(']');
        const std::string_view rest = close == host.npos ? "" : host.substr(close + 1);
        if (close == host.npos || (!rest.empty() && !rest.starts_with(':')))
            bad(key, text, "write [ADDRESS/BITS]:PORT");
        port = rest;
        host = host.substr(1, close - 1);
        if (host.find(':') == host.npos)
            bad(key, text, "brackets are for IPv6 addresses");
    } else if (const auto colon = host.find(':'); colon != host.npos && host.find(':', colon + 1) == host.npos) {
        port = host.substr(colon);
        host = host.substr(0, colon);
    }
    if (!port.empty()) {
        const auto value = number(port.substr(1), 65535);
        if (!value)
            bad(key, text, fmt::format("\"{}\" is not a port (0 to 65535)", port.substr(1)));
        grant.port = static_cast<std::uint16_t>(*value);
    }
    if (host == "*" || (host.empty() && !port.empty()))
        return grant;
    if (host == "host") {
        grant.kind = NetGrant::Kind::own_host;
    } else if (!parse_range(key, text, host, grant)) {
        if (!is_name(host))
            bad(key, text, "write *, an address, ADDRESS/BITS, a host name or host, each with :PORT if need be");
        grant.kind = NetGrant::Kind::name;
        grant.name = host;
    }
    return grant;
}

Volume parse_volume_grant(const std::string& key, const std::string& text) {
    const auto colon = text.find(':');
    const PathText path = cut_path(text.substr(0, colon));
    if (!path.absolute || path.dots)
        bad(key, text, "write HOST or HOST:rwx, where HOST is an absolute path without \"..\"");
    Volume volume;
    volume.host = join_parts(path.parts);
    if (colon == text.npos)
        return volume;
    const std::string letters = text.substr(colon + 1);
    if (letters.empty() || letters.find_first_not_of("rwx") != letters.npos)
        bad(key, text, fmt::format("\"{}\" is not made of r, w and x", letters));
    volume.write = letters.find('w') != letters.npos;
    volume.execute = letters.find('x') != letters.npos;
    volume.read = volume.write || letters.find('r') != letters.npos;
    return volume;
}

bool in_range(const Bytes& address, const Bytes& from, unsigned bits) {
    const unsigned whole = bits / 8, rest = bits % 8;
    if (!std::equal(from.begin(), from.begin() + whole, address.begin()))
        return false;
    return rest == 0 || (address[whole] ^ from[whole]) >> (8 - rest) == 0;
}

std::vector<NetGrant> ranges_of(const NetGrant& grant) {
    switch (grant.kind) {
    case NetGrant::Kind::range: return {grant};
    case NetGrant::Kind::own_host: return own_addresses(grant.port);
    case NetGrant::Kind::name: {
        std::vector<NetGrant> ranges;
        for (const NetAddress& address : addresses_of(grant.name))
            ranges.push_back(range(address.bytes, 128, grant.port));
        return ranges;
    }
    default: return {};
    }
}

NetGrants::NetGrants(const std::vector<NetGrant>& grants) {
    for (const NetGrant& grant : grants) {
        const auto ranges = ranges_of(grant);
        for (const NetGrant& each : ranges)
            ranges_.push_back({each.bytes, each.bits, each.port});
        if (grant.kind == NetGrant::Kind::name && ranges.empty())
            names_.push_back({std::make_shared<const NameAddresses>(grant.name), grant.port});
        if (grant.kind == NetGrant::Kind::unix_path)
            unix_paths_.push_back(grant.name);
        if (grant.kind == NetGrant::Kind::unix_name)
            unix_names_.push_back(grant.name);
    }
}

bool NetGrants::covers(const NetAddress& address) const {
    return std::ranges::any_of(ranges_,
                               [&](const Range& each) {
                                   return (each.port == 0 || each.port == address.port) &&
                                          in_range(address.bytes, each.bytes, each.bits);
                               }) ||
           std::ranges::any_of(names_, [&](const Name& each) {
               return (each.port == 0 || each.port == address.port) && each.addresses->has(address);
           });
}

bool NetGrants::covers_unix_path(const std::string& canonical) const {
    return std::ranges::any_of(unix_paths_, [&](const std::string& path) { return is_beneath(canonical, path); });
}

bool NetGrants::covers_unix_name(const std::string& name) const {
    return std::ranges::any_of(unix_names_, [&](const std::string& each) { return fits_unix_name(name, each); });
}

bool fits_unix_name(const std::string& name, const std::string& granted) {
    if (granted.ends_with('*'))
        return name.starts_with(std::string_view(granted).substr(0, granted.size() - 1));
    return name == granted;
}

} // namespace tinykvm
