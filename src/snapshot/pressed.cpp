#include "src/snapshot/pressed.hpp"

#include <cstring>
#include <type_traits>

#include "src/snapshot/format.hpp"

namespace kvmserver {

namespace {

struct Row { // of to_text(): both sides are the same binary
    Digest sha256;
    std::uint64_t offset;
    std::uint32_t stored;
    std::uint8_t hot, filter;
    std::uint16_t unused;
};
static_assert(sizeof(Row) == 48 && std::is_trivially_copyable_v<Row>);

} // namespace

std::string to_text(const Pressed& pressed) {
    std::string text(sizeof pressed.total_raw, 0);
    std::memcpy(text.data(), &pressed.total_raw, sizeof pressed.total_raw);
    for (const PressedChunk& chunk : pressed.chunks) {
        const Row row{chunk.sha256, chunk.offset, chunk.stored, chunk.hot, static_cast<std::uint8_t>(chunk.filter), 0};
        text.append(reinterpret_cast<const char*>(&row), sizeof row);
    }
    return text;
}

Pressed pressed_from_text(std::string_view text, std::uint64_t file_bytes) {
    Pressed pressed;
    pressed.file_bytes = file_bytes;
    const std::size_t head = sizeof pressed.total_raw;
    if (text.size() < head || (text.size() - head) % sizeof(Row) != 0)
        throw FormatError("the list of chunks has an impossible length");
    std::memcpy(&pressed.total_raw, text.data(), head);
    std::uint64_t end = 0; // of the chunk before: who reads them all reads the file once
    for (text.remove_prefix(head); !text.empty(); text.remove_prefix(sizeof(Row))) {
        Row row;
        std::memcpy(&row, text.data(), sizeof row);
        if (row.hot > 1 || row.filter >= kFilters.size() || row.stored == 0 || row.stored > file_bytes ||
            row.offset < end || row.offset > file_bytes - row.stored)
            throw FormatError("the list of chunks is inconsistent");
        end = row.offset + row.stored;
        pressed.chunks.push_back({row.sha256, row.offset, row.stored, row.hot != 0, static_cast<Filter>(row.filter)});
    }
    return pressed;
}

} // namespace kvmserver
