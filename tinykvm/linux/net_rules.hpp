// The rules of --allow-connect and --allow-listen, matched against socket addresses.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tinykvm/linux/name_addresses.hpp"
#include "tinykvm/linux/net_address.hpp"
#include "tinykvm/linux/permissions.hpp"

namespace tinykvm {

// Those of an address, or of localhost. Empty for other names.
std::vector<NetAddress> addresses_of(const std::string& host);

// The rules of one flag.
class NetRules {
public:
    NetRules() = default;
    // Looks up names. One without an address adds a line to `warnings`.
    NetRules(const std::vector<NetRule>& rules, std::vector<std::string>& warnings);

    // A rule for 0.0.0.0 covers every IPv4 address, a rule for :: or without a host every address.
    bool allows(const NetAddress& address) const;
    bool empty() const { return rules_.empty() && names_.empty(); }

private:
    struct Rule {
        bool any = false;
        NetAddress address; // port 0: any
    };
    struct Name {
        std::shared_ptr<const NameAddresses> addresses;
        std::uint16_t port = 0; // 0: any
    };
    std::vector<Rule> rules_;
    std::vector<Name> names_; // other than localhost
};

} // namespace tinykvm
