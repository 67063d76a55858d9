// libFuzzer: snapshot files with any content behind right checksums. Nothing but UserError and FormatError may come of
// them.
//
// The input is: a byte that chooses what it stands for, then that part; the rest of the file is good.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "src/snapshot/facts.hpp"
#include "src/snapshot/inspect.hpp"
#include "src/snapshot/reader.hpp"
#include "src/snapshot/recompress.hpp"
#include "tests/fuzz/snapshot_parts.hpp"
#include "tests/fuzz/support.hpp"
#include "tinykvm/base/error.hpp"

using namespace fuzz;

namespace {

int memory_file() {
    const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        std::abort();
    return fd;
}

std::unique_ptr<ByteSource> source_of(int file) {
    return open_file_source(tinykvm::UniqueFd(::fcntl(file, F_DUPFD_CLOEXEC, 0)), "fuzz");
}

// Compressed anew it is the same machine, of which there is nothing to compress anew.
void compress_anew(int file) {
    static const int anew = memory_file();
    if (::ftruncate(anew, 0) != 0)
        std::abort();
    const auto pressed = recompress(*source_of(file), anew);
    if (!pressed)
        return;
    const std::string text = to_text(*pressed);
    FUZZ_REQUIRE(text.size() <= kMaxPressedText);
    FUZZ_REQUIRE(pressed_from_text(text, pressed->file_bytes) == *pressed);
    SnapshotFacts before = examine_snapshot(file), after = examine_snapshot(anew);
    before.pieces.clear();
    after.pieces.clear();
    FUZZ_REQUIRE(before == after);
    std::vector<std::byte> images[2];
    for (const int which : {0, 1}) {
        const auto reader = SnapshotReader::open("/proc/self/fd/" + std::to_string(which == 0 ? file : anew));
        if (reader.state().frames > 4 * kFrames)
            return;
        images[which].resize(std::size_t{reader.state().frames} * 4096);
        for (std::size_t i = 0; i < reader.chunks().size(); ++i)
            reader.load_chunk(i, images[which]);
    }
    FUZZ_REQUIRE(images[0] == images[1]);
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
    static const int memfd = memory_file();
    if (::ftruncate(memfd, 0) != 0 || ::pwrite(memfd, file.data(), file.size(), 0) < 0)
        std::abort();
    try {
        facts_from_text(to_text(examine_snapshot(memfd)), Depth::whole, file.size());
    } catch (const FormatError&) {
    }
    try {
        compress_anew(memfd);
    } catch (const FormatError&) {
    } catch (const tinykvm::UserError&) {
    }
    try {
        pressed_from_text({reinterpret_cast<const char*>(data), size}, size);
    } catch (const FormatError&) {
    }
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
