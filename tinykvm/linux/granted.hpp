// Ceilings set by the operator. A program may do what both its Permissions and every Granted that applies to it allow.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tinykvm/linux/net_rules.hpp"
#include "tinykvm/linux/permissions.hpp"

namespace tinykvm {

// One item of allow-connect, deny-connect or allow-listen in a file of ceilings.
struct NetGrant {
    enum class Kind {
        range,     // addresses whose first `bits` bits equal those of `bytes`
        own_host,  // this host's own addresses, including loopback
        name,      // a host name, looked up when somebody connects (NameAddresses)
        unix_path, // a path and everything beneath it
        unix_name, // an abstract name
    };
    Kind kind = Kind::range;
    std::array<std::uint8_t, 16> bytes{}; // IPv4 is IPv4-mapped
    unsigned bits = 0;
    std::uint16_t port = 0; // 0: any
    std::string name;
    std::string text; // as written
    bool operator==(const NetGrant&) const = default;
};

// "*", ":PORT", "HOST", "HOST:PORT", "10.0.0.0/8", "10.0.0.0/8:443", "fd00::/8", "[fd00::/8]:443",
// "localhost", "host" (this host's own addresses), "unix:/PATH", "unix:@NAME",
// "unix:@BEGINNING*". Throws UserError (usage) that begins with `key`.
NetGrant parse_net_grant(const std::string& key, const std::string& text);

// "HOST" or "HOST:rwx", for any guest path. Throws UserError (usage).
Volume parse_volume_grant(const std::string& key, const std::string& text);

// A list that is not set is no ceiling. Paths are absolute, without "..".
struct Granted {
    std::optional<std::vector<std::string>> read, write; // writing implies reading
    std::optional<std::vector<NetGrant>> connect, listen;
    std::optional<std::vector<NetGrant>> deny_connect; // takes precedence over `connect`; not set: denies nothing
    std::optional<std::vector<Volume>> volumes;        // matched by host folder; `guest` is not used
    bool operator==(const Granted&) const = default;
};

// Matches addresses against grants.
class NetGrants {
public:
    NetGrants() = default;
    // Looks up the host's own addresses, once.
    explicit NetGrants(const std::vector<NetGrant>& grants);

    bool covers(const NetAddress& address) const;
    bool covers_unix_path(const std::string& canonical) const;
    bool covers_unix_name(const std::string& name) const; // "@NAME"

private:
    struct Range {
        std::array<std::uint8_t, 16> bytes{};
        unsigned bits = 0;
        std::uint16_t port = 0;
    };
    struct Name {
        std::shared_ptr<const NameAddresses> addresses;
        std::uint16_t port = 0;
    };
    std::vector<Range> ranges_;
    std::vector<Name> names_;
    std::vector<std::string> unix_paths_, unix_names_;
};

// The address ranges that a grant covers; none for Unix sockets, and for host names other than localhost.
std::vector<NetGrant> ranges_of(const NetGrant& grant);
bool fits_unix_name(const std::string& name, const std::string& granted);
bool in_range(const std::array<std::uint8_t, 16>& address, const std::array<std::uint8_t, 16>& range, unsigned bits);

} // namespace tinykvm
