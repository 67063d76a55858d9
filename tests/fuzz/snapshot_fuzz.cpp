// libFuzzer: snapshot files with any content behind right checksums. Nothing but UserError may come of them.
//
// The input is: a byte that chooses what it stands for, then that part; the rest of the file is good.
//   cmake -G Ninja -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DKVMSERVER_FUZZ=ON \
//         -DKVMSERVER_SANITIZE=address,undefined,fuzzer-no-link
//   ninja -C build-fuzz snapshot_fuzz && mkdir -p corpus && build-fuzz/tests/unit/snapshot/snapshot_fuzz
//   corpus
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "src/snapshot/codec.hpp"
#include "src/snapshot/inspect.hpp"
#include "src/snapshot/reader.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using test::Bytes;

namespace {

constexpr std::uint32_t kFrames = 32;

test::Parts good_parts() {
    test::Parts parts;
    ChunkInfo chunk;
    parts.chunks = compress_section(Bytes(4 * 4096, std::byte{5}));
    chunk.stored = static_cast<std::uint32_t>(parts.chunks.size());
    chunk.pages = 4;
    chunk.runs = {{3, 4, 0}, {20, 2, 1}};
    chunk.checksum = format::checksum_of(parts.chunks);
    parts.index = encode_index(std::span(&chunk, 1));
    parts.chunk_count = 1;
    parts.metadata = encode_metadata({this_version(), test::sample_state(kFrames)});
    return parts;
}

Bytes file_for(unsigned kind, const Bytes& input) {
    test::Parts parts = good_parts();
    switch (kind % 4) {
    case 0:
        return input;
    case 1:
        parts.metadata = input;
        break;
    case 2:
        parts.index = input;
        break;
    case 3: {
        parts.chunks = input;
        ChunkInfo chunk;
        chunk.stored = static_cast<std::uint32_t>(input.size());
        chunk.pages = 1;
        chunk.runs = {{3, 1, 0}};
        chunk.filter = kFilters[kind / 4 % kFilters.size()];
        chunk.checksum = format::checksum_of(input);
        parts.index = encode_index(std::span(&chunk, 1));
    }
    }
    return test::assemble(parts);
}

} // namespace

// Starts from good parts: without them it takes for ever to come upon JSON with all fields.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
    if (seed % 8 == 0) {
        const test::Parts parts = good_parts();
        const Bytes choices[] = {test::assemble(parts), parts.metadata, parts.index, parts.chunks};
        const Bytes& choice = choices[seed / 8 % 4];
        if (choice.size() + 1 <= max_size) {
            data[0] = static_cast<std::uint8_t>(seed / 8 % 4);
            std::memcpy(data + 1, choice.data(), choice.size());
            size = choice.size() + 1;
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
