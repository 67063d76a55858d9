#include "tinykvm/memory/syscall_sites.hpp"

#include <Zydis/Zydis.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tinykvm {
namespace {

// Decoding starts at this many neighbouring offsets. x86 code finds its own rhythm after a few instructions: nearly all of
// them come to the same boundaries, and where data lies in code they do not.
constexpr std::size_t kStarts = 12;
constexpr std::size_t kStartsAgreeing = 8;
constexpr std::size_t kRunUp = 48; // bytes between the last start and the SYSCALL
constexpr std::size_t kLongest = 15; // bytes of an instruction

class Decoder {
public:
    Decoder() { ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64); }

    std::optional<ZydisDecodedInstruction> at(std::span<const std::byte> code) const {
        ZydisDecodedInstruction instruction;
        if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder_, nullptr, code.data(), code.size(), &instruction)))
            return std::nullopt;
        return instruction;
    }

private:
    ZydisDecoder decoder_{};
};

// Does the same wherever it lies, and goes on behind itself.
bool movable(const ZydisDecodedInstruction& i) {
    if (i.attributes & (ZYDIS_ATTRIB_IS_RELATIVE | ZYDIS_ATTRIB_IS_PRIVILEGED | ZYDIS_ATTRIB_HAS_LOCK))
        return false;
    switch (i.meta.category) {
    case ZYDIS_CATEGORY_DATAXFER:
    case ZYDIS_CATEGORY_LOGICAL:
    case ZYDIS_CATEGORY_BINARY:
    case ZYDIS_CATEGORY_CONVERT:
    case ZYDIS_CATEGORY_CMOV: return true;
    default: return i.mnemonic == ZYDIS_MNEMONIC_LEA;
    }
}

// MOV $15, %eax or %rax: unwinders know the return from a signal handler by its bytes (libgcc, linux-unwind.h).
bool loads_sigreturn(std::span<const std::byte> code) {
    constexpr std::array<unsigned char, 5> eax{0xb8, 15, 0, 0, 0};
    constexpr std::array<unsigned char, 7> rax{0x48, 0xc7, 0xc0, 15, 0, 0, 0};
    return (code.size() == eax.size() && std::memcmp(code.data(), eax.data(), eax.size()) == 0) ||
           (code.size() == rax.size() && std::memcmp(code.data(), rax.data(), rax.size()) == 0);
}

// Beginnings of the instructions in the kMostMoved bytes before `end`, decoded from `start`: bit n for end - n. Nothing when no
// instruction ends at `end`.
std::optional<std::uint32_t> boundaries(const Decoder& decoder, std::span<const std::byte> code, std::size_t start, std::size_t end) {
    std::uint32_t found = 0;
    while (start < end) {
        if (end - start <= kMostMoved)
            found |= 1u << (end - start);
        const auto instruction = decoder.at(code.subspan(start, std::min(kLongest, code.size() - start)));
        if (!instruction)
            return std::nullopt;
        start += instruction->length;
    }
    return start == end ? std::optional(found) : std::nullopt;
}

// What nearly all starts agree on.
std::optional<std::uint32_t> agreed_boundaries(const Decoder& decoder, std::span<const std::byte> code, std::size_t end) {
    if (end < kRunUp + kStarts)
        return std::nullopt;
    std::optional<std::uint32_t> agreed;
    std::size_t agreeing = 0;
    for (std::size_t n = 0; n < kStarts; ++n) {
        const auto found = boundaries(decoder, code, end - kRunUp - n, end);
        if (!found)
            continue;
        if (agreed && *agreed != *found)
            return std::nullopt;
        agreed = found;
        ++agreeing;
    }
    return agreeing >= kStartsAgreeing ? agreed : std::nullopt;
}

// The nearest instruction before the SYSCALL that is long enough for a jump, when it and all behind it can be moved.
std::optional<SyscallSite> site_before(const Decoder& decoder, std::span<const std::byte> code, std::size_t syscall) {
    const auto starts = agreed_boundaries(decoder, code, syscall);
    if (!starts)
        return std::nullopt;
    std::size_t behind = 0; // distance of the boundary at the instruction's end
    for (std::size_t distance = 1; distance <= kMostMoved; ++distance) {
        if (!(*starts & (1u << distance)))
            continue;
        const auto bytes = code.subspan(syscall - distance, distance - behind);
        const auto instruction = decoder.at(bytes);
        if (!instruction || instruction->length != bytes.size() || !movable(*instruction) || loads_sigreturn(bytes))
            return std::nullopt;
        if (bytes.size() >= kJumpBytes) {
            SyscallSite site{.at = syscall - distance, .moved = static_cast<std::uint8_t>(distance)};
            std::copy_n(code.begin() + static_cast<std::ptrdiff_t>(site.at), distance, site.code.begin());
            return site;
        }
        behind = distance;
    }
    return std::nullopt;
}

} // namespace

std::vector<SyscallSite> find_syscall_sites(std::span<const std::byte> code, std::size_t from, std::size_t to) {
    static const Decoder decoder;
    constexpr std::array<unsigned char, 2> syscall{0x0f, 0x05};
    std::vector<SyscallSite> sites;
    for (std::size_t at = from; at < to;) {
        const std::size_t reach = std::min(code.size(), to + 1);
        const auto* found = at < reach ? static_cast<const std::byte*>(memmem(code.data() + at, reach - at, syscall.data(), syscall.size())) : nullptr;
        if (!found)
            break;
        const auto offset = static_cast<std::size_t>(found - code.data());
        if (auto site = site_before(decoder, code, offset); site && (sites.empty() || site->at >= sites.back().at + sites.back().moved + syscall.size()))
            sites.push_back(*site);
        at = offset + syscall.size();
    }
    return sites;
}

} // namespace tinykvm
