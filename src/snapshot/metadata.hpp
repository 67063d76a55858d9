// Encodes a MachineState as the metadata of a snapshot file.
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

// Throws FormatError for a state that decode_metadata would reject.
std::vector<std::byte> encode_metadata(const Metadata& metadata);

// Strict: unknown or missing fields, wrong types and values that no machine can have throw FormatError naming the
// field. Whether paths, handles and regions make sense on this host is checked by the restore.
Metadata decode_metadata(std::span<const std::byte> bytes);

} // namespace kvmserver
