// Random operations on an address space, compared after each with a model that is too simple to be wrong.
#include <map>

#include "tests/unit/memory/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

constexpr std::uint64_t kArena = 0x10000000;
constexpr std::uint64_t kPages = 96;
constexpr std::uint64_t kFilePages = 32;

struct ModelPage {
    bool mapped = false;
    std::uint32_t prot = 0;
    std::uint64_t value = 0; // first word of the page
    std::int64_t file_page = -1;
    bool was_file = false; // in an image: anonymous now, but a mapping apart from those next to it
    bool operator==(const ModelPage&) const = default;
};
using Model = std::array<ModelPage, kPages>;

std::uint64_t file_value(std::int64_t page) { return 0xf11e0000u + static_cast<std::uint64_t>(page); }

class Play {
public:
    Play(AddressSpace& space, Model& model, std::shared_ptr<const FileBacking> file, unsigned seed)
        : space_(space), model_(model), file_(std::move(file)), random_(seed) {}

    void step() {
        const std::uint64_t at = random_() % kPages, count = 1 + random_() % std::min<std::uint64_t>(kPages - at, 12);
        switch (random_() % 10) {
        case 0: map(at, count); break;
        case 1: map_file(at, count); break;
        case 2:
            REQUIRE(space_.munmap(address(at), count * kPageSize) == 0);
            clear(at, count);
            break;
        case 3:
        case 4: protect(at, count); break;
        case 5: remap(at, count); break;
        case 6: dontneed(at, count); break;
        default: write(at); break;
        }
    }

    // Regions of an image that came from files may be alike and yet apart: `whole` is false for its clones.
    void check(bool whole = true) {
        for (std::uint64_t p = 0; p < kPages; ++p) {
            const ModelPage& want = model_[p];
            CAPTURE(p);
            const auto got = space_.load<std::uint64_t>(GuestVirt(address(p)));
            REQUIRE(got.has_value() == (want.mapped && want.prot != 0));
            if (got)
                REQUIRE(*got == want.value);
            std::vector<iovec> runs;
            REQUIRE(space_.gather(GuestVirt(address(p)), 1, Access::write, runs) ==
                    (want.mapped && (want.prot & PROT_WRITE)));
        }
        REQUIRE((!whole || canonical(space_)));
        std::uint64_t mapped = 0;
        for (const auto& [begin, region] : space_.regions())
            mapped += region.prot != 0 ? region.end - begin : 0; // what is only reserved does not count
        REQUIRE(mapped == space_.address_space_bytes());
    }

private:
    static std::uint64_t address(std::uint64_t page) { return kArena + page * kPageSize; }
    std::uint32_t any_prot() {
        static constexpr std::uint32_t prots[] = {PROT_NONE, PROT_READ, kRw, kRw, kRw, PROT_READ | PROT_EXEC};
        return prots[random_() % std::size(prots)];
    }
    void clear(std::uint64_t at, std::uint64_t count) {
        for (std::uint64_t p = at; p < at + count; ++p)
            model_[p] = {};
    }
    void map(std::uint64_t at, std::uint64_t count) {
        const std::uint32_t prot = any_prot();
        REQUIRE(space_.mmap(address(at), count * kPageSize, prot, kAnon | MAP_FIXED, nullptr, 0) ==
                static_cast<std::int64_t>(address(at)));
        for (std::uint64_t p = at; p < at + count; ++p)
            model_[p] = {true, prot, 0, -1, false};
    }
    void map_file(std::uint64_t at, std::uint64_t count) {
        const std::uint32_t prot = any_prot();
        const std::uint64_t first = random_() % (kFilePages - 12);
        REQUIRE(space_.mmap(address(at), count * kPageSize, prot, MAP_PRIVATE | MAP_FIXED, file_, first * kPageSize) >
                0);
        for (std::uint64_t p = at; p < at + count; ++p) {
            const auto page = static_cast<std::int64_t>(first + p - at);
            model_[p] = {true, prot, file_value(page), page, false};
        }
    }
    void protect(std::uint64_t at, std::uint64_t count) {
        const std::uint32_t prot = any_prot();
        bool whole = true;
        for (std::uint64_t p = at; p < at + count; ++p)
            whole &= model_[p].mapped;
        REQUIRE(space_.mprotect(address(at), count * kPageSize, prot) == (whole ? 0 : -ENOMEM));
        if (whole)
            for (std::uint64_t p = at; p < at + count; ++p)
                model_[p].prot = prot;
    }
    void dontneed(std::uint64_t at, std::uint64_t count) {
        bool whole = true;
        for (std::uint64_t p = at; p < at + count; ++p) {
            whole &= model_[p].mapped;
            model_[p].value = model_[p].file_page < 0 ? 0 : file_value(model_[p].file_page);
        }
        REQUIRE(space_.madvise(address(at), count * kPageSize, MADV_DONTNEED) == (whole ? 0 : -ENOMEM));
    }
    void remap(std::uint64_t at, std::uint64_t count) {
        // One mapping: the same rights, and one run of a file (or none).
        bool one = true;
        for (std::uint64_t p = at; p < at + count; ++p)
            one &= model_[p].mapped && model_[p].prot == model_[at].prot &&
                   (model_[p].file_page < 0) == (model_[at].file_page < 0) &&
                   (model_[p].file_page < 0 ||
                    model_[p].file_page == model_[at].file_page + static_cast<std::int64_t>(p - at));
        const std::uint64_t to = random_() % kPages, want = 1 + random_() % std::min<std::uint64_t>(kPages - to, 12);
        const bool overlap = to < at + count && at < to + want;
        if (model_[at].file_page >= 0 && model_[at].file_page + want > kFilePages)
            return; // behind the file: SIGBUS is another test's
        const std::int64_t result =
            space_.mremap(address(at), count * kPageSize, want * kPageSize, MREMAP_MAYMOVE | MREMAP_FIXED, address(to));
        bool was_file = false;
        for (std::uint64_t p = at; p < at + count; ++p)
            was_file |= model_[p].was_file;
        if (!one || (was_file && result == -EFAULT))
            REQUIRE(result == -EFAULT);
        else if (overlap)
            REQUIRE(result == -EINVAL);
        else
            REQUIRE(result == static_cast<std::int64_t>(address(to)));
        if (result < 0)
            return;
        std::vector<ModelPage> pages(model_.begin() + static_cast<long>(at),
                                     model_.begin() + static_cast<long>(at + count));
        clear(at, count);
        for (std::uint64_t i = 0; i < want; ++i) {
            if (i < count) {
                model_[to + i] = pages[i];
                continue;
            }
            const std::int64_t file_page =
                pages[0].file_page < 0 ? -1 : pages[0].file_page + static_cast<std::int64_t>(i);
            model_[to + i] = {true, pages[0].prot, file_page < 0 ? 0 : file_value(file_page), file_page,
                              pages[0].was_file};
        }
    }
    void write(std::uint64_t at) {
        const std::uint64_t value = random_();
        const bool may = model_[at].mapped && (model_[at].prot & PROT_WRITE);
        REQUIRE(space_.store(GuestVirt(address(at)), value) == may);
        if (may)
            model_[at].value = value;
    }

    AddressSpace& space_;
    Model& model_;
    std::shared_ptr<const FileBacking> file_;
    std::mt19937 random_;
};

std::shared_ptr<const FileBacking> numbered_file() {
    std::string text(kFilePages * kPageSize, 0);
    for (std::uint64_t p = 0; p < kFilePages; ++p) {
        const std::uint64_t value = file_value(static_cast<std::int64_t>(p));
        std::memcpy(text.data() + p * kPageSize, &value, 8);
    }
    return file_of(text);
}

} // namespace

TEST_CASE("random operations do what the model says, and lose no frame") {
    const auto file = numbered_file();
    for (unsigned seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        BootWorld w;
        Model model{};
        Play play(w.space, model, file, seed);
        for (int i = 0; i < 400; ++i) {
            play.step();
            if (i % 8 == 0) {
                CAPTURE(i);
                play.check();
                REQUIRE(w.ram.bytes_in_use() == reachable_frames(w.space) * kPageSize);
            }
        }
    }
}

TEST_CASE("a clone after random operations is reset to its image, page by page") {
    const auto file = numbered_file();
    for (unsigned seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        BootWorld w;
        Model pristine{};
        Play boot(w.space, pristine, file, seed);
        for (int i = 0; i < 150; ++i)
            boot.step();
        w.space.set_brk(0x20000000);
        REQUIRE(w.space.brk(0x20002000) == 0x20002000);
        boot.check();
        for (ModelPage& page : pristine) { // an image is anonymous memory
            page.was_file = page.file_page >= 0;
            page.file_page = -1;
        }
        const auto snapshot = w.freeze();
        const std::vector<std::byte> bytes(snapshot.image->bytes().begin(), snapshot.image->bytes().end());
        CloneWorld clone(snapshot);
        for (unsigned round = 0; round < 15; ++round) {
            CAPTURE(round);
            Model model = pristine;
            Play play(clone.space, model, file, seed * 1000 + round);
            play.check(false);
            for (int i = 0; i < 120; ++i)
                play.step();
            play.check(false);
            clone.space.brk(0x20000000 + round * kPageSize);
            clone.reset();
            REQUIRE(clone.difference() == std::nullopt);
            REQUIRE(clone.ram.high() == clone.ram.image_frames());
            REQUIRE(clone.ram.bytes_in_use() == 0);
            REQUIRE(clone.space.brk_end() == 0x20002000);
            REQUIRE(clone.space.regions().size() == snapshot.regions->size());
            auto want = snapshot.regions->begin();
            for (const auto& [begin, region] : clone.space.regions()) {
                REQUIRE(begin == want->first);
                REQUIRE(region.end == want->second.end);
                REQUIRE(region.prot == want->second.prot);
                ++want;
            }
        }
        // Nothing of all this reached the image.
        REQUIRE(std::memcmp(bytes.data(), snapshot.image->data(), bytes.size()) == 0);
    }
}
