// The metadata of a snapshot file: a MachineState as bytes.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct MadeWith {
    std::string kvmserver, zstd; // versions
    bool operator==(const MadeWith&) const = default;
};
MadeWith this_version();

struct Metadata {
    MadeWith made_with;
    tinykvm::MachineState machine;
};

// Throws FormatError for a state that decode_metadata would not accept.
std::vector<std::byte> encode_metadata(const Metadata& metadata);

// Strict: a field that is unknown, missing or of another type, and a value that no machine can have, throw
// FormatError naming it. Whether paths, handles and regions mean something on this host is for the restore to
// find out.
Metadata decode_metadata(std::span<const std::byte> bytes);

} // namespace kvmserver
