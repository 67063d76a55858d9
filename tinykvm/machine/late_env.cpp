#include "tinykvm/machine/late_env.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tinykvm/abi/layout.hpp"

namespace tinykvm {
namespace {

// The frame that a user address of the image maps; nullopt when there is none. The page tables may be hostile.
std::optional<Frame> frame_at(const MachineImage& image, const Image& memory, std::uint64_t address) {
    GuestPhys table = image.root;
    for (int level = 3;; --level) {
        memory.ensure(frame_of(table));
        std::uint64_t entry;
        std::memcpy(&entry, memory.data() + table.value + ((address >> (12 + 9 * level)) & 511) * sizeof(entry),
                    sizeof(entry));
        if (!pte::mapped(entry) || pte::frame(entry) >= memory.frames() || !(entry & pte::kUser))
            return std::nullopt;
        if (level == 0)
            return pte::frame(entry);
        table = GuestPhys(entry & pte::kAddress);
    }
}

// The host ranges of `place` in the image, one per page; empty when some of it is not mapped.
std::vector<std::span<std::byte>> pieces_of(const MachineImage& image, Image& memory, const LateVariable& place) {
    std::vector<std::span<std::byte>> pieces;
    for (std::uint64_t at = place.at, end = place.at + place.bytes; at < end;) {
        const auto frame = frame_at(image, memory, at);
        if (!frame)
            return {};
        memory.ensure(*frame);
        const std::uint64_t in_page = at % kPageSize, bytes = std::min(kPageSize - in_page, end - at);
        pieces.push_back({memory.data() + frame_address(*frame).value + in_page, bytes});
        at += bytes;
    }
    return pieces;
}

bool holds(const std::vector<std::span<std::byte>>& pieces, const std::string& begin) {
    std::string text;
    for (const auto piece : pieces)
        if (text.size() < begin.size())
            text.append(reinterpret_cast<const char*>(piece.data()),
                        std::min(piece.size(), begin.size() - text.size()));
    return text == begin;
}

} // namespace

std::vector<std::string> set_late_env(const MachineImage& image, Image& memory, std::span<const std::string> variables,
                                      const std::string& copied_by) {
    std::vector<std::string> problems;
    for (const std::string& variable : variables) {
        const std::string begin = variable.substr(0, variable.find('=') + 1), name = begin.substr(0, begin.size() - 1);
        const auto place = std::find_if(image.late_env.begin(), image.late_env.end(),
                                        [&](const LateVariable& late) { return late.name == name; });
        if (place == image.late_env.end()) {
            problems.push_back(fmt::format("{} does not reach the program: its snapshot was not made with --late-env "
                                           "{} (deploy: [function.env] or secrets)",
                                           name, name));
            continue;
        }
        if (variable.size() >= place->bytes) {
            problems.push_back(fmt::format("{} does not reach the program: with its name it is longer than {} bytes",
                                           name, place->bytes - 1));
            continue;
        }
        const auto pieces = pieces_of(image, memory, *place);
        if (!holds(pieces, begin)) {
            problems.push_back(fmt::format(
                "{} does not reach the program: the program has overwritten the place reserved for it", name));
            continue;
        }
        if (!copied_by.empty() && !holds(pieces, variable + '\0'))
            problems.push_back(
                fmt::format("{} stays for the program what it was at its boot: {} copies its environment "
                            "when it starts (docs/howto/secrets.md)",
                            name, copied_by));
        std::string_view left = variable;
        for (const auto piece : pieces) { // zeroes the rest, so that nothing of a longer old value remains
            const std::string_view part = left.substr(0, piece.size());
            std::memcpy(piece.data(), part.data(), part.size());
            std::memset(piece.data() + part.size(), 0, piece.size() - part.size());
            left.remove_prefix(part.size());
        }
    }
    return problems;
}

} // namespace tinykvm
