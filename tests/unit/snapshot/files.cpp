#include "tests/unit/snapshot/files.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "src/snapshot/codec.hpp"
#include "src/snapshot/reader.hpp"

namespace kvmserver::test {

TempFolder::TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "snapshot-test-XXXXXX").string();
    if (!::mkdtemp(name.data()))
        throw std::runtime_error("mkdtemp");
    path_ = name;
}

TempFolder::~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::size_t TempFolder::entries() const {
    const auto all = std::filesystem::directory_iterator(path_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

Bytes to_bytes(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

Bytes read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    return to_bytes(text);
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush())
        throw std::runtime_error("write " + path.string());
}

Bytes make_memory(std::uint32_t frames, unsigned seed) {
    Bytes memory(std::size_t{frames} * 4096);
    std::mt19937 random(seed);
    for (std::uint32_t frame = 0; frame < frames; ++frame) {
        std::byte* page = memory.data() + std::size_t{frame} * 4096;
        const unsigned kind = random() % 8;
        if (kind < 2)
            continue;
        if (kind == 2 && frame > 0) {
            std::memcpy(page, memory.data() + std::size_t{random() % frame} * 4096, 4096);
            continue;
        }
        for (std::size_t i = 0; i < 4096; i += 4) {
            const std::uint32_t value = kind == 3   ? static_cast<std::uint32_t>(random())
                                        : kind == 4 ? 0x0000e890u + (random() % 64 << 16)
                                                    : static_cast<std::uint32_t>(frame + i / 16);
            std::memcpy(page + i, &value, 4);
        }
    }
    return memory;
}

Bytes assemble(const Parts& parts) {
    const Bytes metadata = compress_section(parts.metadata), index = compress_section(parts.index);
    format::Header header;
    header.prefix.guest_abi = 7;
    header.chunks = parts.chunk_count;
    header.chunk_bytes = parts.chunks.size();
    header.metadata = {metadata.size(), parts.metadata.size(), format::checksum_of(metadata)};
    header.index = {index.size(), parts.index.size(), format::checksum_of(index)};
    header.prefix.file_bytes = header.index_at() + index.size();
    parts.change_header(header);
    const auto head = format::encode(header);
    Bytes file(head.begin(), head.end());
    for (const Bytes* part : {&parts.chunks, &metadata, &index})
        file.insert(file.end(), part->begin(), part->end());
    return file;
}

Outcome outcome_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const tinykvm::UserError& error) {
        return {error.code(), error.what()};
    }
    return {};
}

Outcome check_file(const std::filesystem::path& path) {
    return outcome_of([&] { SnapshotReader::open(path).verify(); });
}

} // namespace kvmserver::test
