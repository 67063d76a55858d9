#include "tinykvm/linux/net_rules.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace tinykvm {

namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

NetAddress from_ipv4(const in_addr& address) {
    NetAddress result;
    std::copy(kMapped.begin(), kMapped.end(), result.bytes.begin());
    std::memcpy(result.bytes.data() + kMapped.size(), &address, sizeof address);
    return result;
}

NetAddress from_ipv6(const in6_addr& address) {
    NetAddress result;
    std::memcpy(result.bytes.data(), &address, sizeof address);
    return result;
}

} // namespace

std::vector<NetAddress> addresses_of(const std::string& host) {
    in_addr four{};
    in6_addr six{};
    if (host == "localhost") {
        four.s_addr = htonl(INADDR_LOOPBACK);
        return {from_ipv4(four), from_ipv6(in6addr_loopback)};
    }
    if (inet_pton(AF_INET, host.c_str(), &four) == 1)
        return {from_ipv4(four)};
    if (inet_pton(AF_INET6, host.c_str(), &six) == 1)
        return {from_ipv6(six)};
    return {};
}

bool NetAddress::is_ipv4() const { return std::equal(kMapped.begin(), kMapped.end(), bytes.begin()); }

bool NetAddress::is_any() const {
    const auto from = is_ipv4() ? bytes.begin() + kMapped.size() : bytes.begin();
    return std::all_of(from, bytes.end(), [](std::uint8_t b) { return b == 0; });
}

bool NetAddress::is_loopback() const {
    if (is_ipv4())
        return bytes[kMapped.size()] == 127;
    return bytes.back() == 1 && std::all_of(bytes.begin(), bytes.end() - 1, [](std::uint8_t b) { return b == 0; });
}

std::string NetAddress::text() const {
    char buffer[INET6_ADDRSTRLEN] = "";
    if (is_ipv4()) {
        inet_ntop(AF_INET, bytes.data() + kMapped.size(), buffer, sizeof buffer);
        return fmt::format("{}:{}", buffer, port);
    }
    inet_ntop(AF_INET6, bytes.data(), buffer, sizeof buffer);
    return fmt::format("[{}]:{}", buffer, port);
}

std::optional<NetAddress> net_address(const sockaddr* address, socklen_t length) {
    sa_family_t family = 0;
    if (length < sizeof family)
        return std::nullopt;
    std::memcpy(&family, address, sizeof family);
    if (family == AF_INET && length >= sizeof(sockaddr_in)) {
        sockaddr_in four{};
        std::memcpy(&four, address, sizeof four);
        NetAddress result = from_ipv4(four.sin_addr);
        result.port = ntohs(four.sin_port);
        return result;
    }
    // Linux accepts an AF_INET6 address without the scope (SIN6_LEN_RFC2133).
    constexpr socklen_t kShortest = offsetof(sockaddr_in6, sin6_scope_id);
    if (family == AF_INET6 && length >= kShortest) {
        sockaddr_in6 six{};
        std::memcpy(&six, address, std::min<std::size_t>(length, sizeof six));
        NetAddress result = from_ipv6(six.sin6_addr);
        result.port = ntohs(six.sin6_port);
        return result;
    }
    return std::nullopt;
}

NetRules::NetRules(const std::vector<NetRule>& rules, std::vector<std::string>& warnings) {
    for (const NetRule& rule : rules) {
        if (rule.host.starts_with(kUnixRule))
            continue; // handled by Policy
        if (rule.host.empty()) {
            Rule any;
            any.any = true;
            any.address.port = rule.port;
            rules_.push_back(any);
            continue;
        }
        const auto addresses = addresses_of(rule.host);
        if (addresses.empty()) {
            names_.push_back({std::make_shared<const NameAddresses>(rule.host), rule.port});
            if (!names_.back().addresses->has_any())
                warnings.push_back(fmt::format(
                    "\"{}\" in a network permission has no address: nothing is allowed by it until it has one",
                    rule.host));
        }
        for (NetAddress address : addresses) {
            address.port = rule.port;
            rules_.push_back({false, address});
        }
    }
}

bool NetRules::allows(const NetAddress& address) const {
    return std::any_of(rules_.begin(), rules_.end(),
                       [&](const Rule& rule) {
                           if (rule.address.port != 0 && rule.address.port != address.port)
                               return false;
                           if (rule.any || rule.address.bytes == address.bytes)
                               return true;
                           if (!rule.address.is_any())
                               return false;
                           return !rule.address.is_ipv4() || address.is_ipv4();
                       }) ||
           std::ranges::any_of(names_, [&](const Name& name) {
               return (name.port == 0 || name.port == address.port) && name.addresses->has(address);
           });
}

} // namespace tinykvm
