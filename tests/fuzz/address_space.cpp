// libFuzzer: memory calls of two machines of one image, which also share a file that becomes shorter and
// longer, against a model that is too simple to be wrong; and calls with any arguments, after which nothing
// may be lost. After each input the machines are reset: regions, frames and pages must be those of the image.
//
// First byte: what is played.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/address_model.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/memory/code_stubs.hpp"

using namespace fuzz;

namespace {

// Any call with any arguments: only that nothing breaks.
void any_call(AddressSpace& space, const std::shared_ptr<const FileBacking>& shared, Input& in) {
    static constexpr std::uint64_t kSizes[] = {
        0,         1,          kPageSize, 2 * kPageSize, 16 * kPageSize, kMiB,
        64 * kMiB, 1ull << 40, ~0ull,     ~0ull << 12,   1ull << 63,     layout::kUserMax};
    static constexpr std::uint64_t kPlaces[] = {0,
                                                kPageSize,
                                                layout::kUserMin,
                                                kArena,
                                                kArena,
                                                kArena,
                                                kBrk,
                                                0x40000000,
                                                layout::kMmapTop,
                                                layout::kMmapTop - kMiB,
                                                layout::kUserMax - kPageSize,
                                                layout::kUserMax,
                                                layout::kKernelImage,
                                                layout::kFileArea,
                                                ~0ull,
                                                1ull << 47};
    const auto any_bytes = [&] { return in.one_of(kSizes) + (in.byte() & 1 ? in.byte() * kPageSize : 0); };
    const auto any_place = [&] { return in.one_of(kPlaces) + in.byte() * kPageSize + (in.byte() % 16 == 0); };
    const auto any_file = [&]() -> std::shared_ptr<const FileBacking> {
        switch (in.byte() % 4) {
        case 0: return private_file();
        case 1: return shared;
        case 2: return code_file();
        default: return nullptr;
        }
    };
    const std::uint64_t at = any_place(), bytes = any_bytes();
    shared_file().changed = true; // by MADV_REMOVE
    switch (in.below(16)) {
    case 0:
    case 1:
    case 2: {
        static constexpr std::uint32_t kFlags[] = {MAP_PRIVATE, MAP_SHARED,    MAP_FIXED,    MAP_FIXED_NOREPLACE,
                                                   MAP_32BIT,   MAP_GROWSDOWN, MAP_POPULATE, MAP_NORESERVE};
        std::uint32_t flags = in.byte() % 2 ? MAP_PRIVATE : MAP_SHARED;
        for (unsigned n = in.below(3); n > 0; --n)
            flags |= in.one_of(kFlags);
        if ((flags & MAP_TYPE) != MAP_PRIVATE)
            flags &= ~static_cast<std::uint32_t>(MAP_GROWSDOWN); // as Machine::map_call
        space.mmap(at, bytes, in.byte() % 9, flags, any_file(),
                   in.one_of(kSizes) & ~(in.byte() % 8 ? kPageSize - 1 : 0));
        break;
    }
    case 3: space.munmap(at, bytes); break;
    case 4:
    case 5:
        space.mprotect(at, bytes,
                       in.byte() % 9 | (in.byte() % 16 == 0 ? static_cast<std::uint32_t>(PROT_GROWSDOWN) : 0));
        break;
    case 6:
    case 7: {
        const std::uint64_t to = any_place();
        space.mremap(at, bytes, any_bytes(), in.byte() % 5, to);
        break;
    }
    case 8:
    case 9: space.madvise(at, bytes, in.byte() % 32); break;
    case 10: space.brk(at); break;
    case 11: space.mincore(at, bytes, GuestVirt(any_place())); break;
    case 12: space.msync(at, bytes, in.byte() % 8); break;
    case 13: space.mlock(at, bytes); break;
    case 14: space.fault(GuestVirt(at), static_cast<FaultAccess>(in.byte() % 3)); break;
    default: {
        // Behind what another range gave: what is refused leaves it as it was.
        const auto sum = [](const std::vector<iovec>& runs) {
            std::uint64_t all = 0;
            for (const iovec& run : runs)
                all += run.iov_len;
            return all;
        };
        std::vector<iovec> runs;
        const std::uint64_t first = in.byte() * 64, length = std::min<std::uint64_t>(bytes, 4 * kMiB);
        const Access access = in.byte() % 2 ? Access::read : Access::write;
        const std::uint64_t before = space.gather(GuestVirt(kArena), first, access, runs) ? first : 0;
        FUZZ_REQUIRE(sum(runs) == before);
        const bool whole = space.gather(GuestVirt(in.byte() % 2 ? at : kArena + first), length, access, runs);
        FUZZ_REQUIRE(sum(runs) == before + (whole ? length : 0));
        space.drop_own_pages(at, bytes);
    }
    }
}

void check_sums(AddressSpace& space) {
    std::uint64_t mapped = 0;
    for (const auto& [begin, region] : space.regions())
        mapped += region.prot != 0 ? region.end - begin : 0; // what is only reserved does not count
    FUZZ_REQUIRE(mapped == space.address_space_bytes());
}

constexpr StubEntries kStubEntries{0x7ff000001000, 0x7ff000002000};

// An image in which a bit of everything is mapped, and two machines of it.
struct Pair {
    Model pristine{};
    std::shared_ptr<const FileBacking> shared;
    BootWorld::Snapshot snapshot;
    std::vector<std::byte> bytes;
    std::optional<CloneWorld> machine[2];

    Pair() {
        shared_file().renew();
        shared = backing(shared_file().fd, "/shared", true);
        BootWorld w;
        Play play(w.space, pristine, shared);
        static constexpr std::uint8_t kSteps[][6] = {
            {0, 9, 0, 2},     // pages 0 to 9: writable
            {2, 0, 10, 6},    // one is written to
            {12, 5, 1, 2, 3}, // 12 to 17: of a file
            {20, 3, 0, 1},    // read-only
            {26, 1, 0, 0},    // only reserved
            {13, 0, 10, 9},   // one of the file's is written to
            {4, 1, 4, 1},     // rights that shrink
        };
        for (const auto& step : kSteps) {
            Input in(step, sizeof step);
            play.step(in);
        }
        w.space.patch_code(kStubEntries);
        FUZZ_REQUIRE(w.space.mmap(kArena - 64 * kPageSize, 4 * kPageSize, PROT_READ | PROT_EXEC,
                                  MAP_PRIVATE | MAP_FIXED, code_file(), 0) > 0);
        w.space.set_brk(kBrk);
        w.space.brk(kBrk + 0x2000);
        for (Page& page : pristine) { // an image is anonymous memory
            page.was_file = page.file_page >= 0;
            page.file_page = -1;
        }
        snapshot = w.freeze();
        bytes.assign(snapshot.image->bytes().begin(), snapshot.image->bytes().end());
        for (auto& m : machine) {
            m.emplace(snapshot, 2 * kMiB, 64 * kMiB);
            m->space.patch_code(kStubEntries);
        }
    }
    void reset_and_check() {
        for (auto& m : machine) {
            check_sums(m->space);
            m->reset();
            FUZZ_REQUIRE(!m->difference());
            FUZZ_REQUIRE(m->ram.high() == m->ram.image_frames() && m->ram.bytes_in_use() == 0);
            FUZZ_REQUIRE(m->space.brk_end() == snapshot.brk_end &&
                         m->space.regions().size() == snapshot.regions->size());
            auto want = snapshot.regions->begin();
            for (const auto& [begin, region] : m->space.regions()) {
                FUZZ_REQUIRE(begin == want->first && region.end == want->second.end &&
                             region.prot == want->second.prot && region.flags == want->second.flags &&
                             region.name == want->second.name);
                ++want;
            }
        }
        FUZZ_REQUIRE(std::memcmp(bytes.data(), snapshot.image->data(), bytes.size()) == 0);
    }
};

void play_two(Input& in, bool model) {
    static Pair pair;
    shared_file().renew();
    Model models[2] = {pair.pristine, pair.pristine};
    Play plays[2] = {{pair.machine[0]->space, models[0], pair.shared},
                     {pair.machine[1]->space, models[1], pair.shared}};
    for (unsigned n = 0; n < 48 && !in.empty(); ++n) {
        const unsigned who = in.byte();
        if (who >= 248)
            shared_file().resize(in.below(kFilePages + 1));
        else if (model)
            plays[who % 2].step(in);
        else
            any_call(pair.machine[who % 2]->space, pair.shared, in);
    }
    for (Play& play : plays)
        if (model)
            play.check_all(false);
    pair.reset_and_check();
}

// A machine that boots, little memory, and what becomes of it as an image.
void play_boot(Input& in, bool model) {
    const auto shared = backing(shared_file().fd, "/shared", true);
    shared_file().renew();
    BootWorld w(model ? 16 * kMiB : kMiB, 64 * kMiB);
    w.space.patch_code(kStubEntries);
    w.space.set_brk(kBrk);
    Model pages{};
    Play play(w.space, pages, shared);
    for (unsigned n = 0; n < 48 && !in.empty(); ++n)
        if (model)
            play.step(in);
        else
            any_call(w.space, shared, in);
    if (model)
        play.check_all(true);
    check_sums(w.space);
    const auto windows = [&] { // frames that are a file's are no memory of the machine's
        std::uint64_t count = 0;
        w.space.tables().update(GuestVirt(0), GuestVirt(std::uint64_t{1} << 47), [&](GuestVirt, std::uint64_t entry) {
            count += w.ram.is_window(pte::frame(entry));
            return entry;
        });
        return count;
    };
    FUZZ_REQUIRE(w.ram.bytes_in_use() == (reachable_frames(w.space) - windows()) * kPageSize);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input in(data, size);
    const unsigned what = in.byte();
    try {
        if (what % 32 < 2)
            play_boot(in, what % 2);
        else
            play_two(in, what % 2);
    } catch (const UserError& error) {
        std::fprintf(stderr, "%s\n", error.what()); // no KVM
        std::abort();
    }
    return 0;
}
