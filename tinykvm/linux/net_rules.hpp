// The rules of --allow-connect and --allow-listen, matched against socket addresses.
#pragma once
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tinykvm/linux/permissions.hpp"

namespace tinykvm {

// An internet address and port. IPv4 addresses are stored IPv4-mapped.
struct NetAddress {
    std::array<std::uint8_t, 16> bytes{};
    std::uint16_t port = 0;
    bool is_ipv4() const;
    bool is_any() const;      // 0.0.0.0 or ::
    bool is_loopback() const; // 127.0.0.0/8 or ::1
    // "1.2.3.4:80", "[::1]:80"
    std::string text() const;
};

// The address, if it is a complete AF_INET or AF_INET6 one.
std::optional<NetAddress> net_address(const sockaddr* address, socklen_t length);

// The addresses of a host given as an address or a name. Names are resolved now; empty if that fails.
std::vector<NetAddress> addresses_of(const std::string& host);

// The rules of one flag.
class NetRules {
public:
    NetRules() = default;
    // Resolves names other than localhost, once. A name that does not resolve adds a line to `warnings` and allows
    // nothing.
    NetRules(const std::vector<NetRule>& rules, std::vector<std::string>& warnings);

    // A rule for 0.0.0.0 covers every IPv4 address, a rule for :: or without a host every address.
    bool allows(const NetAddress& address) const;
    bool empty() const { return rules_.empty(); }

private:
    struct Rule {
        bool any = false;
        NetAddress address; // port 0: any
    };
    std::vector<Rule> rules_;
};

} // namespace tinykvm
