// libFuzzer: any bytes as code. What is found may be moved, sites do not touch each other, patches can be
// taken back, and looking costs no more than it may for so many places that may be a system call.
#include <Zydis/Zydis.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "tests/fuzz/support.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/memory/code_stubs.hpp"

using namespace tinykvm;

namespace {

constexpr std::uint64_t kAddress = 0x7f0000000000, kStubs = kAddress - 0x100000, kEntry = 0x7ff000001234;
// With sanitizers. A trap takes at most 47 instructions, each decoded once.
constexpr std::uint64_t kFreeNs = 20'000'000, kTrapNs = 2'000'000;

std::uint64_t cpu_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

bool is_trap(std::span<const std::byte> at, SiteKind kind) {
    return at[0] == std::byte{0x0f} && at[1] == (kind == SiteKind::cpuid ? std::byte{0xa2} : std::byte{0x05});
}

bool is_any_trap(std::span<const std::byte> at) {
    return is_trap(at, SiteKind::cpuid) || is_trap(at, SiteKind::system_call);
}

void check_site(std::span<const std::byte> code, const CodeSite& site) {
    FUZZ_REQUIRE(site.moved >= kJumpBytes && site.moved <= kMaxMoved);
    FUZZ_REQUIRE(site.at + site.moved + kTrapBytes <= code.size());
    FUZZ_REQUIRE(is_trap(code.subspan(site.at + site.moved), site.kind));
    FUZZ_REQUIRE(std::equal(site.code.begin(), site.code.begin() + site.moved,
                            code.begin() + static_cast<std::ptrdiff_t>(site.at)));
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    std::size_t at = 0;
    while (at < site.moved) {
        ZydisDecodedInstruction i;
        FUZZ_REQUIRE(
            ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, site.code.data() + at, site.moved - at, &i)));
        FUZZ_REQUIRE(at > 0 || i.length >= kJumpBytes);
        FUZZ_REQUIRE(!(i.attributes & ZYDIS_ATTRIB_IS_RELATIVE) && i.meta.category != ZYDIS_CATEGORY_SYSCALL &&
                     i.meta.category != ZYDIS_CATEGORY_CALL);
        at += i.length;
    }
    FUZZ_REQUIRE(at == site.moved);
}

void check_patches(std::span<const std::byte> code, const std::vector<CodeSite>& sites) {
    std::vector<std::byte> pages(code.begin(), code.end());
    pages.resize((code.size() + kPageSize - 1) / kPageSize * kPageSize);
    const auto original = pages;
    const CodePatches patches(sites, kAddress, kStubs);
    const std::vector<std::byte> stubs = patches.stubs({kEntry, kEntry + 64});
    FUZZ_REQUIRE(stubs.size() == patches.stubs_bytes() && stubs.size() % kPageSize == 0);
    patches.apply(pages, kAddress);
    std::size_t changed = 0;
    for (std::size_t i = 0; i + kJumpBytes <= pages.size(); ++i) {
        if (pages[i] != std::byte{0xe9})
            continue;
        std::int32_t distance;
        std::memcpy(&distance, pages.data() + i + 1, sizeof distance);
        const std::uint64_t target = kAddress + i + kJumpBytes + static_cast<std::uint64_t>(std::int64_t{distance});
        if (target < kStubs || target - kStubs + abi::kStubBytes > stubs.size() || target % abi::kStubBytes != 0)
            continue;
        const std::span<const std::byte, abi::kStubBytes> stub(stubs.data() + (target - kStubs), abi::kStubBytes);
        if (const auto before = replaced_by_jump(kAddress + i, stub, target)) {
            std::copy(before->begin(), before->end(), pages.begin() + static_cast<std::ptrdiff_t>(i));
            ++changed;
        }
    }
    FUZZ_REQUIRE(changed >= sites.size() && pages == original);
    // A file that is another one by now keeps what it has.
    std::vector<std::byte> other = original;
    for (std::byte& byte : other)
        byte ^= std::byte{0xff};
    const auto as_it_was = other;
    patches.apply(other, kAddress);
    FUZZ_REQUIRE(other == as_it_was);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input in(data, size);
    const std::size_t cut = in.take<std::uint16_t>();
    // Room for the run up to the first instruction.
    std::vector<std::byte> code(64, std::byte{0x90});
    for (const std::uint8_t byte : in.rest())
        code.push_back(std::byte{byte});

    std::size_t traps = 1;
    for (std::size_t i = 0; i + kTrapBytes <= code.size(); ++i)
        traps += is_any_trap(std::span(code).subspan(i));
    std::vector<CodeSite> sites;
    // The least of some, where the first took long: on a busy host, time in which the machine did not run counts, too.
    std::uint64_t least = ~0ull;
    for (unsigned n = 0; n < 5 && least >= kFreeNs + traps * kTrapNs; ++n) {
        const std::uint64_t before = cpu_ns();
        sites = find_code_sites(code, 0, code.size());
        least = std::min(least, cpu_ns() - before);
    }
    FUZZ_REQUIRE(least < kFreeNs + traps * kTrapNs);

    std::size_t end = 0;
    for (const CodeSite& site : sites) {
        check_site(code, site);
        FUZZ_REQUIRE(site.at >= end); // else two jumps would lie over each other
        end = site.at + site.moved + kTrapBytes;
    }
    // In two parts, or of so many places only: the same as far as it goes. Not each time: looking is what
    // takes the time.
    if (cut % 4 == 0) {
        const std::size_t middle = std::min(cut / 4, code.size());
        auto parts = find_code_sites(code, 0, middle);
        for (CodeSite& site : find_code_sites(code, middle, code.size()))
            parts.push_back(site);
        FUZZ_REQUIRE(parts.size() == sites.size());
        for (std::size_t i = 0; i < sites.size(); ++i)
            FUZZ_REQUIRE(parts[i].at == sites[i].at && parts[i].moved == sites[i].moved);
    } else if (cut % 4 == 1) {
        const std::size_t allowed = 1 + cut / 4 % 4;
        std::size_t left = allowed;
        const auto some = find_code_sites(code, 0, code.size(), &left);
        FUZZ_REQUIRE(left <= allowed && some.size() <= std::min(allowed, sites.size()));
        for (std::size_t i = 0; i < some.size(); ++i)
            FUZZ_REQUIRE(some[i].at == sites[i].at);
    } else if (cut % 4 == 2) {
        static const int file = ::memfd_create("code", MFD_CLOEXEC);
        const std::size_t skipped = cut / 4 % 3 * kPageSize;
        FUZZ_REQUIRE(::ftruncate(file, 0) == 0 &&
                     ::pwrite(file, code.data(), code.size(), static_cast<off_t>(skipped)) ==
                         static_cast<ssize_t>(code.size()));
        auto inside = sites; // no jump lies in two pages
        std::erase_if(inside, [](const CodeSite& site) { return site.at % kPageSize > kPageSize - kJumpBytes; });
        const auto found = find_code_sites(file, skipped, 2 * kPageSize, 100);
        FUZZ_REQUIRE(found.size() == std::min<std::size_t>(inside.size(), 100));
        for (std::size_t i = 0; i < found.size(); ++i)
            FUZZ_REQUIRE(found[i].at == inside[i].at + skipped);
    }
    check_patches(code, sites);
    return 0;
}
