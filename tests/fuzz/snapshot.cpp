// libFuzzer: snapshot files with any content behind right checksums. Nothing but UserError may come of them.
//
// The input is: a byte that chooses what it stands for, then that part; the rest of the file is good.
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include <vector>

#include "src/snapshot/codec.hpp"
#include "src/snapshot/inspect.hpp"
#include "src/snapshot/reader.hpp"
#include "tests/fuzz/support.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using test::Bytes;

namespace {

constexpr std::uint32_t kFrames = 32;
constexpr unsigned kKinds = 5;

// Quick, where compress_section() is thorough.
Bytes compressed(const Bytes& bytes) {
    static ZSTD_CCtx* const context = ZSTD_createCCtx();
    Bytes out(ZSTD_compressBound(bytes.size()));
    out.resize(ZSTD_compressCCtx(context, out.data(), out.size(), bytes.data(), bytes.size(), 1));
    return out;
}

struct Section {
    explicit Section(const Bytes& bytes) : raw(bytes.size()), stored(compressed(bytes)) {}
    std::size_t raw;
    Bytes stored;
};

Bytes assemble(const Bytes& chunk, const Section& metadata, const Section& index) {
    format::Header header;
    header.prefix.guest_abi = 7;
    header.chunks = 1;
    header.chunk_bytes = chunk.size();
    header.metadata = {metadata.stored.size(), metadata.raw, format::checksum_of(metadata.stored)};
    header.index = {index.stored.size(), index.raw, format::checksum_of(index.stored)};
    header.prefix.file_bytes = header.index_at() + index.stored.size();
    const auto head = format::encode(header);
    Bytes file(head.begin(), head.end());
    for (const Bytes* part : {&chunk, &metadata.stored, &index.stored})
        file.insert(file.end(), part->begin(), part->end());
    return file;
}

Bytes index_of(const Bytes& chunk, std::uint32_t pages, std::vector<ChunkRun> runs,
               Filter filter = Filter::none) {
    ChunkInfo info;
    info.stored = static_cast<std::uint32_t>(chunk.size());
    info.pages = pages;
    info.runs = std::move(runs);
    info.filter = filter;
    info.checksum = format::checksum_of(chunk);
    return encode_index(std::span(&info, 1));
}

struct Good {
    Bytes chunk = compressed(Bytes(4 * 4096, std::byte{5}));
    Bytes metadata = encode_metadata({this_version(), test::sample_state(kFrames)});
    Bytes index = index_of(chunk, 4, {{3, 4, 0}, {20, 2, 1}});
    Section stored_metadata{metadata}, stored_index{index};
    Bytes file = assemble(chunk, stored_metadata, stored_index);
};

const Good& good() {
    static const Good parts;
    return parts;
}

Bytes file_for(unsigned kind, Bytes input) {
    const Filter filter = kFilters[kind / kKinds % kFilters.size()];
    switch (kind % kKinds) {
    case 0:
        return input;
    case 1:
        return assemble(good().chunk, Section(input), good().stored_index);
    case 2:
        return assemble(good().chunk, good().stored_metadata, Section(input));
    case 3: // a chunk as stored
        return assemble(input, good().stored_metadata, Section(index_of(input, 1, {{3, 1, 0}}, filter)));
    default: { // its pages
        input.resize(4096);
        const Bytes chunk = compressed(input);
        return assemble(chunk, good().stored_metadata, Section(index_of(chunk, 1, {{3, 1, 0}}, filter)));
    }
    }
}

} // namespace

// Starts from good parts: without them it takes for ever to come upon JSON with all fields.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
    if (seed % 8 == 0) {
        const Bytes* const choices[] = {&good().file, &good().metadata, &good().index, &good().chunk};
        const Bytes* const choice = choices[seed / 8 % 4];
        if (choice->size() + 1 <= max_size) {
            data[0] = static_cast<std::uint8_t>(seed / 8 % 4);
            std::memcpy(data + 1, choice->data(), choice->size());
            size = choice->size() + 1;
        }
    }
    return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0)
        return 0;
    const auto* first = reinterpret_cast<const std::byte*>(data);
    const Bytes file = file_for(data[0], Bytes(first + 1, first + size));
    static const tinykvm::CpuState cpu = test::this_cpu();
    static const int memfd = ::memfd_create("fuzz", MFD_CLOEXEC);
    if (::ftruncate(memfd, 0) != 0 || ::pwrite(memfd, file.data(), file.size(), 0) < 0)
        std::abort();
    try {
        const auto reader = SnapshotReader::open("/proc/self/fd/" + std::to_string(memfd));
        describe(reader, cpu);
        reader.verify();
        if (reader.state().frames > 4 * kFrames)
            return 0;
        std::vector<std::byte> image(std::size_t{reader.state().frames} * 4096);
        for (std::size_t i = 0; i < reader.chunks().size(); ++i)
            reader.load_chunk(i, image);
    } catch (const tinykvm::UserError&) {
    }
    return 0;
}
