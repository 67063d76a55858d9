// Sends a snapshot: only the pieces that the server lacks, again and again from where it broke off.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "src/remote/client.hpp"

namespace kvmserver::remote {

struct Uploaded {
    std::string snapshot;         // "sha256:..."
    std::uint64_t bytes = 0;      // of the snapshot
    std::uint64_t new_bytes = 0;  // of pieces that the store had not
    std::uint64_t sent_bytes = 0; // what travelled, headers not counted
};

using Progress = std::function<void(std::uint64_t done, std::uint64_t all)>;

// Throws UserError (bad_snapshot) for a bad file, Problem, Broken when the server stays away.
Uploaded upload(Client& client, const std::filesystem::path& file, const Progress& progress);

} // namespace kvmserver::remote
