#include "tinykvm/memory/code_stubs.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/guest_addr.hpp"

namespace tinykvm {
namespace {

constexpr std::size_t kStubsAPage = kPageSize / abi::kStubBytes - 1; // the page's head takes the first place

constexpr std::byte kJump{0xe9};

void put32(std::byte* to, std::uint64_t distance) {
    const auto value = static_cast<std::uint32_t>(distance);
    std::memcpy(to, &value, sizeof(value));
}

} // namespace

std::uint64_t CodePatches::stub_bytes(std::size_t sites) { return (sites + kStubsAPage - 1) / kStubsAPage * kPageSize; }

std::uint64_t CodePatches::stub_of(std::size_t site) const {
    return stubs_at_ + site / kStubsAPage * kPageSize + (1 + site % kStubsAPage) * abi::kStubBytes;
}

std::vector<std::byte> CodePatches::stubs(const StubEntries& entries) const {
    std::vector<std::byte> pages(stubs_bytes());
    const abi::StubPage head{entries.system_call, abi::kStubMagic, entries.cpuid};
    for (std::size_t page = 0; page < pages.size(); page += kPageSize)
        std::memcpy(pages.data() + page, &head, sizeof(head));
    for (std::size_t n = 0; n < sites_.size(); ++n) {
        const CodeSite& site = sites_[n];
        const std::uint64_t at = stub_of(n);
        std::byte* stub = pages.data() + (at - stubs_at_);
        std::copy_n(site.code.begin(), site.moved, stub);
        std::byte* next = stub + site.moved;
        const std::uint64_t behind_lea = at + site.moved + 7, behind_jump = behind_lea + 6;
        const bool cpuid = site.kind == SiteKind::cpuid;
        const std::array<unsigned char, 3> lea{0x48, 0x8d,
                                               static_cast<unsigned char>(cpuid ? 0x15 : 0x0d)}; // to RDX or RCX
        constexpr std::array<unsigned char, 2> jump{0xff, 0x25};
        std::memcpy(next, lea.data(), lea.size());
        put32(next + 3, shift_ + site.at + site.moved + kTrapBytes - behind_lea);
        std::memcpy(next + 7, jump.data(), jump.size());
        put32(next + 9, page_down(at) +
                            (cpuid ? offsetof(abi::StubPage, cpuid_entry) : offsetof(abi::StubPage, entry)) -
                            behind_jump);
        stub[abi::kStubBytes - 1] = std::byte{site.moved};
    }
    return pages;
}

void CodePatches::apply(std::span<std::byte> pages, std::uint64_t address) const {
    const std::uint64_t begin = address - shift_;
    auto site = std::lower_bound(sites_.begin(), sites_.end(), begin,
                                 [](const CodeSite& s, std::uint64_t at) { return s.at < at; });
    for (; site != sites_.end() && site->at - begin + kJumpBytes <= pages.size(); ++site) {
        std::byte* at = pages.data() + (site->at - begin);
        if (!std::equal(at, at + kJumpBytes, site->code.begin()))
            continue; // the file has changed since the search
        *at = kJump;
        put32(at + 1, stub_of(static_cast<std::size_t>(site - sites_.begin())) - (shift_ + site->at + kJumpBytes));
    }
}

std::optional<std::array<std::byte, kJumpBytes>>
replaced_by_jump(std::uint64_t address, std::span<const std::byte, abi::kStubBytes> stub, std::uint64_t stub_address) {
    const auto moved = std::to_integer<std::size_t>(stub[abi::kStubBytes - 1]);
    if (moved < kJumpBytes || moved > kMaxMoved)
        return std::nullopt;
    std::int32_t distance;
    std::memcpy(&distance, stub.data() + moved + 3, sizeof(distance));
    if (stub_address + moved + 7 + static_cast<std::uint64_t>(std::int64_t{distance}) != address + moved + kTrapBytes)
        return std::nullopt;
    std::array<std::byte, kJumpBytes> original;
    std::copy_n(stub.begin(), kJumpBytes, original.begin());
    return original;
}

std::vector<CodeSite> find_code_sites(int fd, std::uint64_t offset, std::uint64_t bytes, std::size_t max_sites) {
    constexpr std::uint64_t kScanned = 256 << 10, kAround = 128;
    // Programs can map anything as code, so the cost must be bounded. The largest real program is Deno, with 60 MB.
    constexpr std::uint64_t kMaxBytes = 256 << 20;
    std::size_t traps = 16384;
    bytes = std::min(bytes, kMaxBytes);
    std::vector<CodeSite> all;
    std::vector<std::byte> block(kScanned + 2 * kAround);
    for (std::uint64_t at = 0; at < bytes; at += kScanned) {
        const std::uint64_t before = std::min(at, kAround);
        const std::uint64_t want = std::min(bytes - at, kScanned + kAround) + before;
        std::uint64_t have = 0;
        while (have < want) {
            const ssize_t n =
                ::pread(fd, block.data() + have, want - have, static_cast<off_t>(offset + at - before + have));
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                break; // the file ends in the mapping or was truncated: the missing part has no system calls
            have += static_cast<std::uint64_t>(n);
        }
        for (CodeSite& site :
             find_code_sites(std::span(block).first(have), before, std::min(have, before + kScanned), &traps)) {
            site.at += offset + at - before;
            if (site.at % kPageSize <= kPageSize - kJumpBytes)
                all.push_back(site);
        }
        if (all.size() > max_sites)
            all.resize(max_sites);
        if (have < want || traps == 0 || all.size() == max_sites)
            break;
    }
    return all;
}

} // namespace tinykvm
