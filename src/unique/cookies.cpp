// Regions that the program itself has marked: include/kvmserver/entropy.h.
#include "include/kvmserver/entropy.h"
#include "src/unique/finder.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

void find_cookies(const MemoryView& memory, Findings& findings) {
    constexpr std::uint32_t kMaxBytes = 1 << 20;
    kvmserver_entropy wanted;
    kvmserver_entropy_place(&wanted, 0);
    std::uint64_t beginning;
    std::memcpy(&beginning, wanted.mark, sizeof(beginning));
    for (const Written& run : memory.written()) {
        const auto words = run.words();
        for (std::size_t i = 0; i < words.size(); ++i) {
            if (words[i] != beginning)
                continue;
            const GuestVirt at = run.begin + i * sizeof(std::uint64_t);
            const auto found = memory.value<kvmserver_entropy>(at);
            const GuestVirt behind = at + sizeof(kvmserver_entropy);
            if (found && std::memcmp(found->mark, wanted.mark, sizeof(wanted.mark)) == 0 && found->reserved == 0 &&
                found->bytes != 0 && found->bytes <= kMaxBytes && !memory.bytes(behind, found->bytes).empty())
                for (const Range& part : memory.writable_parts(behind, found->bytes))
                    findings.add_random(part.begin, part.end.value - part.begin.value, "entropy region of the program");
        }
    }
}

} // namespace kvmserver::unique
