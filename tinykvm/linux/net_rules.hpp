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

// An internet address in one form: IPv4 is IPv4-mapped.
struct NetAddress {
    std::array<std::uint8_t, 16> bytes{};
    std::uint16_t port = 0;
    bool is_ipv4() const;
    bool is_any() const; // 0.0.0.0 or ::
    // "1.2.3.4:80", "[::1]:80"
    std::string text() const;
};

// Nothing unless it is a whole AF_INET or AF_INET6 address.
std::optional<NetAddress> net_address(const sockaddr* address, socklen_t length);

// Of an address or a name, which is resolved now; none when it has none.
std::vector<NetAddress> addresses_of(const std::string& host);

class NetRules {
public:
    NetRules() = default;
    // Names other than localhost are resolved here, once; one that cannot be gives a line in `warnings` and
    // allows nothing.
    NetRules(const std::vector<NetRule>& rules, std::vector<std::string>& warnings);

    // A rule with 0.0.0.0 or :: as its host covers every address of its family (:: both families).
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
