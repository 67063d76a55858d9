// What is said of a snapshot that was compressed anew: plain values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/digest.hpp"
#include "src/snapshot/filter.hpp"

namespace kvmserver {

// A chunk that was compressed anew: where it is in the new file, and what a cache needs to know of it.
struct PressedChunk {
    Digest sha256; // of its pages
    std::uint64_t offset = 0;
    std::uint32_t stored = 0; // bytes
    bool hot = false;
    Filter filter = Filter::none;
    bool operator==(const PressedChunk&) const = default;
};

struct Pressed {
    std::uint64_t file_bytes = 0;
    std::uint64_t total_raw = 0; // of all chunks, Effort::total_raw
    std::vector<PressedChunk> chunks;
    bool operator==(const Pressed&) const = default;
};

// For another process. pressed_from_text() is strict: the text may come from a process that a hostile snapshot has
// taken over. It throws FormatError unless all chunks lie behind each other in a file of `file_bytes`.
std::string to_text(const Pressed& pressed);
Pressed pressed_from_text(std::string_view text, std::uint64_t file_bytes);
// Most bytes that to_text() gives for a file that examine_snapshot() accepts.
inline constexpr std::size_t kMaxPressedText = 4 << 20;

} // namespace kvmserver
