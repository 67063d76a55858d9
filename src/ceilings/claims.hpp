// Compares what a snapshot and its manifest claim with what is granted.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/ceilings/ceilings.hpp"
#include "src/snapshot/facts.hpp"

namespace kvmserver {

// What a snapshot and, for a function, its manifest ask for.
struct Claims {
    tinykvm::Permissions permissions;
    tinykvm::Limits limits;
    std::uint64_t image_bytes = 0; // guest memory in the snapshot, which cannot be made smaller
    std::optional<std::uint64_t> machines, kept_machines, queue; // from the manifest
    bool keep_state = false;                                     // the machines do: both are scale.machines
    std::vector<ListenAddress> listen;                           // from the manifest: of a TCP function
};
Claims claims_of(const tinykvm::MachineState& state);
Claims claims_of(const SnapshotFacts& facts);

// A claim that exceeds a ceiling.
struct Excess {
    std::string claim;   // "--allow-write=/etc"
    std::string granted; // "/srv/data", "nothing"
    bool fatal = false;  // the function cannot run with less
};
// The claims that exceed the ceilings: the first 20, and all fatal ones.
std::vector<Excess> claims_above(const Ceilings& ceilings, const Claims& claims);
// "--allow-write=/etc (granted: nothing); ..."
std::string text_of(const std::vector<Excess>& all);

} // namespace kvmserver
