// Ceilings: the most that an operator grants a function, whatever its snapshot and manifest ask for.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/listen_address.hpp"
#include "tinykvm/linux/granted.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

// Addresses that TCP functions may claim: "127.0.0.1:5432", "10.0.0.0/8:5000-5999", ":8000-8999" (on every address).
struct ListenGrant {
    tinykvm::NetGrant where;           // its port is not used
    std::uint16_t first = 0, last = 0; // ports
    std::string text;                  // as written
    bool operator==(const ListenGrant&) const = default;
    // Throws UserError (usage) that begins with `key`.
    static ListenGrant parse(const std::string& key, const std::string& text);
    bool covers(const ListenAddress& address) const;
};

// Members without a value have no ceiling.
struct Ceilings {
    tinykvm::Granted granted;
    std::optional<std::vector<ListenGrant>> tcp_listen;
    std::optional<std::vector<std::string>> env; // names, or prefixes that end in '*'
    std::optional<double> boot_seconds, request_seconds, request_total_seconds, request_cpu_seconds;
    std::optional<std::uint64_t> memory, address_space, request_memory, keep_memory; // bytes
    std::optional<std::uint64_t> open_files;
    std::optional<std::uint64_t> machines, kept_machines,
        queue;                                        // of a version: scale.max, scale.min, scale.queue
    std::optional<std::uint64_t> functions, versions; // versions: of each function
    std::optional<std::uint64_t> disk_bytes;          // of all functions' snapshots
    std::optional<std::uint64_t> log_bytes;           // of one function
    bool operator==(const Ceilings&) const = default;
};

// `json` is an object with the keys of a ceilings file (docs/SERVE.md). Throws UserError (usage); the message begins
// with where(key).
Ceilings ceilings_from(const nlohmann::json& json, const std::function<std::string(std::string_view key)>& where);
nlohmann::json to_json(const Ceilings& ceilings);
// The ceilings of `more`, and those of `base` for members that `more` does not set.
Ceilings merged(const Ceilings& base, const Ceilings& more);

// Default ceilings for tokens that are limited to a prefix of function names. No host paths except those that every
// program may read; no volumes, no Unix sockets, no addresses of this host for TCP functions, no connections to this
// host or to link-local addresses; the command line's default limits.
const Ceilings& strangers_ceilings();

// Paths that every ceiling on reading includes: what a distribution ships for all programs.
std::vector<std::string> public_paths();
// The ceilings as a Policy takes them.
tinykvm::Granted granted_by(const Ceilings& ceilings);
// The limits asked for, each cut down to its ceiling.
tinykvm::Limits limited_by(const tinykvm::Limits& asked, const Ceilings& ceilings);

// A list of ceilings that apply at once, as text (JSON) and back. Throws UserError (usage).
std::string ceilings_text(const std::vector<Ceilings>& all);
std::vector<Ceilings> ceilings_from_text(std::string_view text); // "": empty list

} // namespace kvmserver
