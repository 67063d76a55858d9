#include "tinykvm/memory/code_sites.hpp"

#include <Zydis/Zydis.h>
#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace tinykvm {
namespace {

// Decoding starts at this many neighbouring offsets. x86 code synchronises itself: a decoder that started in the middle
// of an instruction soon finds the right boundaries, or bytes that are not an instruction. In data among code it does
// not. "Trap" means a SYSCALL or CPUID here.
constexpr std::size_t kStarts = 16;
constexpr std::size_t kStartsAgreeing = 4;
constexpr std::size_t kRunUp = 32;        // bytes between the last start and the trap
constexpr std::size_t kLongest = 15;      // bytes of an instruction
constexpr std::size_t kNumberWithin = 31; // the trap's number must be loaded within this many bytes before it

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

// Whether an instruction is position-independent and continues with the next one.
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

// Whether this is MOV $15, %eax or %rax: unwinders recognise the return from a signal handler by these bytes (libgcc,
// linux-unwind.h).
bool loads_sigreturn(std::span<const std::byte> code) {
    constexpr std::array<unsigned char, 5> eax{0xb8, 15, 0, 0, 0};
    constexpr std::array<unsigned char, 7> rax{0x48, 0xc7, 0xc0, 15, 0, 0, 0};
    return (code.size() == eax.size() && std::memcmp(code.data(), eax.data(), eax.size()) == 0) ||
           (code.size() == rax.size() && std::memcmp(code.data(), rax.data(), rax.size()) == 0);
}

// Whether an instruction loads the number of a trap. A system call has a small number, loaded as compilers do, or it is
// in the C library's syscall(), whose last argument comes from the stack. CPUID has a leaf number in one of three
// ranges. Constants in code that look like a trap (tables of ciphers) have no such instruction before them.
bool loads_number(std::span<const std::byte> code, SiteKind kind) {
    const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(code[at]); };
    const auto small = [&](std::size_t at) {
        const bool range =
            byte(at + 3) == 0 || (kind == SiteKind::cpuid && (byte(at + 3) == 0x80 || byte(at + 3) == 0x40));
        return byte(at + 1) < (kind == SiteKind::cpuid ? 1 : 4) && byte(at + 2) == 0 && range;
    };
    constexpr std::array<unsigned char, 5> sixth_argument{0x4c, 0x8b, 0x4c, 0x24, 8}; // mov 8(%rsp), %r9
    switch (code.size()) {
    case 2: return (byte(0) == 0x31 || byte(0) == 0x33) && byte(1) == 0xc0; // xor %eax, %eax
    case 3:
        return kind == SiteKind::system_call && byte(0) == 0x44 && byte(1) == 0x89 &&
               (byte(2) & 0xc7) == 0xc0; // mov %r8d to %r15d, %eax
    case 5:
        return (byte(0) == 0xb8 && small(1)) ||
               (kind == SiteKind::system_call &&
                std::memcmp(code.data(), sixth_argument.data(), sixth_argument.size()) == 0);
    case 7: return byte(0) == 0x48 && byte(1) == 0xc7 && byte(2) == 0xc0 && small(3); // mov $n, %rax
    default: return false;
    }
}

// For each distance of a start from `end`: the instruction boundaries that decoding from there finds, as a bit set. Bit
// n is the boundary at end - n, for n up to kNumberWithin. 0: an instruction crosses `end`. nullopt: invalid
// instruction.
using Boundaries = std::array<std::optional<std::uint32_t>, kRunUp + kStarts>;

// Begins with the shortest distance, so that each place is decoded only once.
Boundaries boundaries(const Decoder& decoder, std::span<const std::byte> code, std::size_t end) {
    Boundaries from;
    from[0] = 1;
    for (std::size_t distance = 1; distance < from.size(); ++distance) {
        const std::size_t start = end - distance;
        const auto instruction = decoder.at(code.subspan(start, std::min(kLongest, code.size() - start)));
        if (!instruction)
            continue;
        from[distance] = instruction->length <= distance ? from[distance - instruction->length] : 0;
        if (distance <= kNumberWithin && from[distance].value_or(0) != 0)
            *from[distance] |= 1u << distance;
    }
    return from;
}

// The boundaries on which all starts agree, from `end` back to the first disagreement. 0 when too few starts agree.
std::uint32_t agreed_boundaries(const Decoder& decoder, std::span<const std::byte> code, std::size_t end) {
    if (end < kRunUp + kStarts)
        return 0;
    const Boundaries from = boundaries(decoder, code, end);
    std::uint32_t all = ~0u, any = 0;
    std::size_t agreeing = 0, across = 0;
    for (std::size_t n = 0; n < kStarts; ++n) {
        const auto found = from[kRunUp + n];
        if (found && *found != 0) {
            all &= *found;
            any |= *found;
            ++agreeing;
        } else if (found) {
            ++across;
        }
    }
    if (agreeing < kStartsAgreeing || agreeing < 3 * across)
        return 0;
    const std::uint32_t different = all ^ any;
    return different ? all & ((different & -different) - 1) : all;
}

// The site of a trap: the nearest instruction before it that is long enough for a jump. nullopt when it or an
// instruction between them cannot be moved, or when nothing loads the trap's number.
std::optional<CodeSite> site_before(const Decoder& decoder, std::span<const std::byte> code, std::size_t trap,
                                    SiteKind kind) {
    const std::uint32_t starts = agreed_boundaries(decoder, code, trap);
    // A 4-byte number is proof enough by itself. A short instruction must begin at an agreed boundary.
    bool numbered = false;
    std::size_t behind = 0; // distance of the boundary at the end of the instruction
    for (std::size_t distance = 1; distance <= std::min(kNumberWithin, trap) && !numbered; ++distance) {
        const auto from = code.subspan(trap - distance, distance);
        for (const std::size_t length : {std::size_t{5}, std::size_t{7}})
            numbered |= length <= distance && loads_number(from.first(length), kind);
        if (starts & (1u << distance)) {
            numbered |= loads_number(from.first(distance - behind), kind);
            behind = distance;
        }
    }
    if (!numbered)
        return std::nullopt;
    behind = 0;
    for (std::size_t distance = 1; distance <= kMaxMoved; ++distance) {
        if (!(starts & (1u << distance)))
            continue;
        const auto bytes = code.subspan(trap - distance, distance - behind);
        const auto instruction = decoder.at(bytes);
        if (!instruction || instruction->length != bytes.size() || !movable(*instruction) || loads_sigreturn(bytes))
            return std::nullopt;
        if (bytes.size() >= kJumpBytes) {
            CodeSite site{.at = trap - distance, .moved = static_cast<std::uint8_t>(distance), .kind = kind};
            std::copy_n(code.begin() + static_cast<std::ptrdiff_t>(site.at), distance, site.code.begin());
            return site;
        }
        behind = distance;
    }
    return std::nullopt;
}

constexpr std::byte kEscape{0x0f}, kSyscall{0x05}, kCpuid{0xa2};

// The first SYSCALL (0F 05) or CPUID (0F A2) that begins in [at, to), or `to`. Compares 16 bytes at a time, because
// programs have hundreds of megabytes of code.
std::size_t next_trap(std::span<const std::byte> code, std::size_t at, std::size_t to) {
    const auto all = [](std::byte b) { return _mm_set1_epi8(static_cast<char>(b)); };
    const __m128i escape = all(kEscape), syscall = all(kSyscall), cpuid = all(kCpuid);
    for (; at < to && at + 17 <= code.size(); at += 16) {
        const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(code.data() + at));
        const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(code.data() + at + 1));
        const __m128i either = _mm_or_si128(_mm_cmpeq_epi8(second, syscall), _mm_cmpeq_epi8(second, cpuid));
        if (const auto found =
                static_cast<unsigned>(_mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(first, escape), either))))
            return std::min(to, at + static_cast<std::size_t>(std::countr_zero(found)));
    }
    for (; at < to && at + kTrapBytes <= code.size(); ++at)
        if (code[at] == kEscape && (code[at + 1] == kSyscall || code[at + 1] == kCpuid))
            return at;
    return to;
}

} // namespace

std::vector<CodeSite> find_code_sites(std::span<const std::byte> code, std::size_t from, std::size_t to,
                                      std::size_t* traps) {
    static const Decoder decoder;
    std::vector<CodeSite> sites;
    for (std::size_t at = from; (at = next_trap(code, at, to)) < to; at += kTrapBytes) {
        if (traps && (*traps)-- == 1)
            break;
        const auto kind = code[at + 1] == kSyscall ? SiteKind::system_call : SiteKind::cpuid;
        const auto site = site_before(decoder, code, at, kind);
        // If another trap lies in the moved bytes, wholly or in part, only one of the two can be patched: this one's
        // jump would overwrite the other one, or the address to which that one's stub returns.
        if (site && next_trap(code, site->at - 1, at) == at)
            sites.push_back(*site);
    }
    return sites;
}

} // namespace tinykvm
