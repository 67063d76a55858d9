// Two machines' memory as a model that is too simple to be wrong, and operations on both.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/support.hpp"
#include "tests/unit/memory/spaces.hpp"

namespace fuzz {

using namespace tinykvm;
using namespace tinykvm::test;

inline constexpr std::uint64_t kArena = 0x10000000, kPages = 40, kFilePages = 24, kBrk = 0x20000000;

struct Page {
    bool mapped = false;
    std::uint32_t prot = 0;
    std::uint64_t value = 0;       // first word
    std::int64_t file_page = -1;   // of a private mapping
    std::int64_t shared_page = -1; // of the file that both share: its value is the file's
    bool was_file = false;         // in the image: anonymous now, but a mapping apart from those next to it
};
using Model = std::array<Page, kPages>;

inline std::uint64_t file_value(std::int64_t page) { return 0xf11e0000u + static_cast<std::uint64_t>(page); }

inline int make_file(const char* name) {
    const int fd = ::memfd_create(name, MFD_CLOEXEC);
    FUZZ_REQUIRE(fd >= 0);
    return fd;
}

inline void fill_file(int fd) {
    std::array<std::byte, kPageSize> page{};
    for (std::uint64_t p = 0; p < kFilePages; ++p) {
        const std::uint64_t value = file_value(static_cast<std::int64_t>(p));
        std::memcpy(page.data(), &value, sizeof value);
        FUZZ_REQUIRE(::pwrite(fd, page.data(), page.size(), static_cast<off_t>(p * kPageSize)) == kPageSize);
    }
}

inline std::shared_ptr<const FileBacking> backing(int fd, const char* name, bool writable) {
    return std::make_shared<FileBacking>(FileBacking{.fd = UniqueFd(::dup(fd)), .name = name, .writable = writable});
}

// The file that both machines map shared, as it is and as it should be.
struct SharedFile {
    int fd = make_file("shared");
    std::uint64_t pages = 0;
    std::array<std::uint64_t, kFilePages> values{};

    bool changed = true;

    void renew() {
        if (!std::exchange(changed, false))
            return;
        FUZZ_REQUIRE(::ftruncate(fd, 0) == 0);
        fill_file(fd);
        pages = kFilePages;
        for (std::uint64_t p = 0; p < kFilePages; ++p)
            values[p] = file_value(static_cast<std::int64_t>(p));
    }
    void resize(std::uint64_t to) {
        changed = true;
        FUZZ_REQUIRE(::ftruncate(fd, static_cast<off_t>(to * kPageSize)) == 0);
        for (std::uint64_t p = to; p < kFilePages; ++p)
            values[p] = 0;
        pages = to;
    }
};

inline SharedFile& shared_file() {
    static SharedFile file;
    return file;
}

// A file with system calls in it, which are led to stubs when it is mapped as code.
inline const std::shared_ptr<const FileBacking>& code_file() {
    static const auto file = [] {
        const int fd = make_file("code");
        std::string page(kPageSize, '\x90');
        for (const std::size_t at : {128, 2000})
            page.replace(at, 7, std::string("\xb8\x01\0\0\0\x0f\x05", 7));
        for (std::uint64_t p = 0; p < 4; ++p)
            FUZZ_REQUIRE(::pwrite(fd, page.data(), page.size(), static_cast<off_t>(p * kPageSize)) == kPageSize);
        return backing(fd, "/code", false);
    }();
    return file;
}

inline const std::shared_ptr<const FileBacking>& private_file() {
    static const auto file = [] {
        const int fd = make_file("private");
        fill_file(fd);
        return backing(fd, "/private", false);
    }();
    return file;
}

inline std::uint64_t address(std::uint64_t page) { return kArena + page * kPageSize; }

// Operations of one machine whose outcome the model knows.
class Play {
public:
    Play(AddressSpace& space, Model& model, std::shared_ptr<const FileBacking> shared)
        : space_(space), model_(model), shared_(std::move(shared)) {}

    void step(Input& in) {
        const std::uint64_t at = in.below(kPages), count = 1 + in.below(std::min<std::uint64_t>(kPages - at, 12));
        switch (in.below(12)) {
        case 0: map(at, count, any_prot(in)); break;
        case 1: map_file(in, at, count); break;
        case 2: map_shared(in, at, count); break;
        case 3:
            FUZZ_REQUIRE(space_.munmap(address(at), count * kPageSize) == 0);
            clear(at, count);
            break;
        case 4: protect(at, count, any_prot(in)); break;
        case 5: remap(in, at, count); break;
        case 6: dontneed(at, count); break;
        case 7: check(at); break;
        case 8: cut_between(in, at, count); break;
        case 9: space_.drop_lost_pages(); break;
        default: write(at, in.byte() + 1u);
        }
    }
    void check_all(bool whole) {
        for (std::uint64_t p = 0; p < kPages; ++p)
            check(p);
        FUZZ_REQUIRE(!whole || canonical(space_));
    }

private:
    static std::uint32_t any_prot(Input& in) {
        static constexpr std::uint32_t kProts[] = {PROT_NONE, PROT_READ, kRw, kRw, kRw, PROT_READ | PROT_EXEC};
        return in.one_of(kProts);
    }
    bool there(const Page& page) const {
        return page.shared_page < 0 || static_cast<std::uint64_t>(page.shared_page) < shared_file().pages;
    }
    std::uint64_t value(const Page& page) const {
        return page.shared_page < 0 ? page.value : shared_file().values[static_cast<std::size_t>(page.shared_page)];
    }
    void clear(std::uint64_t at, std::uint64_t count) {
        for (std::uint64_t p = at; p < at + count; ++p)
            model_[p] = {};
    }
    void check(std::uint64_t p) {
        const Page& want = model_[p];
        const bool readable = want.mapped && want.prot != 0 && there(want);
        const auto got = space_.load<std::uint64_t>(GuestVirt(address(p)));
        FUZZ_REQUIRE(got.has_value() == readable);
        FUZZ_REQUIRE(!got || *got == value(want));
        std::vector<iovec> runs;
        if (there(want)) // else copying tells, as above
            FUZZ_REQUIRE(space_.gather(GuestVirt(address(p)), 1, Access::write, runs) ==
                         (readable && (want.prot & PROT_WRITE)));
    }
    void map(std::uint64_t at, std::uint64_t count, std::uint32_t prot) {
        FUZZ_REQUIRE(space_.mmap(address(at), count * kPageSize, prot, kAnon | MAP_FIXED, nullptr, 0) ==
                     static_cast<std::int64_t>(address(at)));
        for (std::uint64_t p = at; p < at + count; ++p)
            model_[p] = {.mapped = true, .prot = prot};
    }
    void map_file(Input& in, std::uint64_t at, std::uint64_t count) {
        const std::uint32_t prot = any_prot(in);
        const std::uint64_t first = in.below(kFilePages - 12);
        FUZZ_REQUIRE(space_.mmap(address(at), count * kPageSize, prot, MAP_PRIVATE | MAP_FIXED, private_file(),
                                 first * kPageSize) > 0);
        for (std::uint64_t p = at; p < at + count; ++p) {
            const auto page = static_cast<std::int64_t>(first + p - at);
            model_[p] = {.mapped = true, .prot = prot, .value = file_value(page), .file_page = page};
        }
    }
    void map_shared(Input& in, std::uint64_t at, std::uint64_t count) {
        const std::uint32_t prot = any_prot(in);
        const std::uint64_t first = in.below(kFilePages - 12);
        FUZZ_REQUIRE(
            space_.mmap(address(at), count * kPageSize, prot, MAP_SHARED | MAP_FIXED, shared_, first * kPageSize) > 0);
        for (std::uint64_t p = at; p < at + count; ++p)
            model_[p] = {.mapped = true, .prot = prot, .shared_page = static_cast<std::int64_t>(first + p - at)};
    }
    void protect(std::uint64_t at, std::uint64_t count, std::uint32_t prot) {
        bool whole = true;
        for (std::uint64_t p = at; p < at + count; ++p)
            whole &= model_[p].mapped;
        FUZZ_REQUIRE(space_.mprotect(address(at), count * kPageSize, prot) == (whole ? 0 : -ENOMEM));
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
        FUZZ_REQUIRE(space_.madvise(address(at), count * kPageSize, MADV_DONTNEED) == (whole ? 0 : -ENOMEM));
    }
    void remap(Input& in, std::uint64_t at, std::uint64_t count) {
        const Page& first = model_[at];
        bool one = true, was_file = false; // one mapping: the same rights, and one run of a file (or none)
        for (std::uint64_t p = at; p < at + count; ++p) {
            const Page& page = model_[p];
            const auto apart = static_cast<std::int64_t>(p - at);
            one &= page.mapped && page.prot == first.prot &&
                   (page.file_page < 0 ? first.file_page < 0
                                       : first.file_page >= 0 && page.file_page == first.file_page + apart) &&
                   (page.shared_page < 0 ? first.shared_page < 0
                                         : first.shared_page >= 0 && page.shared_page == first.shared_page + apart);
            was_file |= page.was_file;
        }
        const std::uint64_t to = in.below(kPages), want = 1 + in.below(std::min<std::uint64_t>(kPages - to, 12));
        const auto beyond = [&](std::int64_t page) {
            return page >= 0 && static_cast<std::uint64_t>(page) + want > kFilePages;
        };
        if (beyond(first.file_page) || beyond(first.shared_page))
            return;
        const bool overlap = to < at + count && at < to + want;
        const std::int64_t result =
            space_.mremap(address(at), count * kPageSize, want * kPageSize, MREMAP_MAYMOVE | MREMAP_FIXED, address(to));
        if (!one || (was_file && result == -EFAULT))
            FUZZ_REQUIRE(result == -EFAULT);
        else
            FUZZ_REQUIRE(result == (overlap ? -EINVAL : static_cast<std::int64_t>(address(to))));
        if (result < 0)
            return;
        std::vector<Page> pages(model_.begin() + static_cast<long>(at), model_.begin() + static_cast<long>(at + count));
        clear(at, count);
        for (std::uint64_t i = 0; i < want; ++i) {
            if (i < count) {
                model_[to + i] = pages[i];
                continue;
            }
            Page more{.mapped = true, .prot = pages[0].prot, .was_file = pages[0].was_file};
            if (pages[0].file_page >= 0)
                more.value = file_value(more.file_page = pages[0].file_page + static_cast<std::int64_t>(i));
            if (pages[0].shared_page >= 0)
                more.shared_page = pages[0].shared_page + static_cast<std::int64_t>(i);
            model_[to + i] = more;
        }
    }
    void write(std::uint64_t at, std::uint64_t to) {
        Page& page = model_[at];
        const bool may = page.mapped && (page.prot & PROT_WRITE) && there(page);
        FUZZ_REQUIRE(space_.store(GuestVirt(address(at)), to) == may);
        shared_file().changed = true;
        if (may)
            (page.shared_page < 0 ? page.value : shared_file().values[static_cast<std::size_t>(page.shared_page)]) = to;
    }
    // The other machine makes the file shorter after a call has looked its pages up.
    void cut_between(Input& in, std::uint64_t at, std::uint64_t count) {
        std::vector<iovec> runs;
        space_.begin_call();
        const bool there_now = space_.gather(GuestVirt(address(at)), count * kPageSize, Access::read, runs);
        shared_file().resize(in.below(kFilePages + 1));
        bool all_there = true;
        for (std::uint64_t p = at; p < at + count; ++p)
            all_there &= there(model_[p]);
        std::vector<std::byte> bytes(count * kPageSize);
        std::size_t done = 0;
        for (const iovec& run : runs) {
            FUZZ_REQUIRE(done + run.iov_len <= bytes.size());
            const bool copied = space_.copy_out(bytes.data() + done, run);
            FUZZ_REQUIRE(copied || !all_there);
            done += run.iov_len;
        }
        FUZZ_REQUIRE(!there_now || done == bytes.size());
    }

    AddressSpace& space_;
    Model& model_;
    std::shared_ptr<const FileBacking> shared_;
};

} // namespace fuzz
