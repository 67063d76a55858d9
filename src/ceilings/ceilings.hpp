// Ceilings: what an operator grants a function at most, whatever its snapshot and its manifest ask for.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinykvm/linux/granted.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

// Nothing: no ceiling.
struct Ceilings {
    tinykvm::Granted granted;
    std::optional<std::vector<std::string>> env; // names, or prefixes that end in '*'
    std::optional<double> boot_seconds, request_seconds, request_total_seconds;
    std::optional<std::uint64_t> memory, address_space, request_memory, keep_memory; // bytes
    std::optional<std::uint64_t> open_files;
    std::optional<std::uint64_t> machines, kept_machines,
        queue;                                        // of a version: scale.max, scale.min, scale.queue
    std::optional<std::uint64_t> functions, versions; // versions: of each function
    std::optional<std::uint64_t> disk_bytes;          // of the snapshots of all functions
    std::optional<std::uint64_t> log_bytes;           // of a function
    bool operator==(const Ceilings&) const = default;
};

// `json` is an object with the keys of a file of ceilings (docs/SERVE.md). Throws UserError (usage); the
// message begins with where(key).
Ceilings ceilings_from(const nlohmann::json& json, const std::function<std::string(std::string_view key)>& where);
nlohmann::json to_json(const Ceilings& ceilings);
// Those of `more` where it has them, else those of `base`.
Ceilings over(const Ceilings& base, const Ceilings& more);

// For the holders of tokens for functions of a prefix, where their operator says nothing else: no paths of
// the host but what every program may read, no volumes, no Unix sockets, no connections to this host or its
// neighbours' link-local addresses, and the limits that the command line has by default.
const Ceilings& strangers_ceilings();

// What is within any ceiling on reading: what a distribution ships for every program.
std::vector<std::string> public_paths();
// For a Policy.
tinykvm::Granted granted_by(const Ceilings& ceilings);
tinykvm::Limits lesser(const tinykvm::Limits& asked, const Ceilings& ceilings);

// Several ceilings that a function is under at once, as text and back. Throws UserError (usage).
std::string ceilings_text(const std::vector<Ceilings>& all);
std::vector<Ceilings> ceilings_from_text(std::string_view text); // "": none

} // namespace kvmserver
