// libFuzzer: snapshot files with any content behind right checksums. Nothing but UserError and FormatError may come of
// them.
//
// The input is: a byte that chooses what it stands for, then that part; the rest of the file is good.
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "src/snapshot/facts.hpp"
#include "src/snapshot/inspect.hpp"
#include "src/snapshot/reader.hpp"
#include "tests/fuzz/snapshot_parts.hpp"
#include "tests/fuzz/support.hpp"
#include "tinykvm/base/error.hpp"

using namespace fuzz;

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
        facts_from_text(to_text(examine_snapshot(memfd)), Depth::whole, file.size());
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
