// Describes a snapshot, for people and for programs.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "src/snapshot/reader.hpp"

namespace kvmserver {

// Lines "name  value", each ended by a line break. With `host`, the last one is "compatible: yes" or "compatible: no:
// WHY". Control characters from the file are never printed.
std::string describe(const SnapshotReader& reader, const std::optional<tinykvm::CpuState>& host = std::nullopt);
// The same as a JSON object. Sizes are in bytes; "compatible" is a boolean, "incompatible_because" a string.
nlohmann::json describe_json(const SnapshotReader& reader, const std::optional<tinykvm::CpuState>& host = std::nullopt);

// "127.0.0.1:8080", "[::1]:80", "unix:/run/app.sock", "unix:@name".
std::string listener_text(const tinykvm::ListenerState& listener);

} // namespace kvmserver
