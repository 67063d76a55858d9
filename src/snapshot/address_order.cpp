#include "src/snapshot/address_order.hpp"

#include <cstring>

#include "tinykvm/base/guest_addr.hpp"

namespace kvmserver {

namespace {

constexpr unsigned kLevels = 4;
constexpr std::size_t kEntries = 512;
constexpr std::uint64_t kWritable = 2;
constexpr std::uint64_t kAddress = 0x000f'ffff'ffff'f000;

class Walk {
public:
    explicit Walk(std::span<const std::byte> memory) : memory_(memory), seen_(memory.size() / tinykvm::kPageSize) {}

    void visit_table(std::uint64_t frame, unsigned level) {
        if (!mark(frame))
            return;
        tables_.push_back(static_cast<std::uint32_t>(frame));
        for (std::size_t i = 0; i < kEntries; ++i) {
            std::uint64_t entry;
            std::memcpy(&entry, &memory_[frame * tinykvm::kPageSize + i * sizeof entry], sizeof entry);
            if (entry == 0) // entries that are not present may still name a frame (PROT_NONE)
                continue;
            const std::uint64_t next = (entry & kAddress) / tinykvm::kPageSize;
            if (level > 1)
                visit_table(next, level - 1);
            else if (mark(next))
                ((entry & kWritable) != 0 ? writable_ : read_only_).push_back(static_cast<std::uint32_t>(next));
        }
    }

    std::vector<std::uint32_t> ranks() {
        std::vector<std::uint32_t> ranks(seen_.size());
        std::uint32_t rank = 0;
        for (const auto* frames : {&tables_, &read_only_, &writable_})
            for (const std::uint32_t frame : *frames)
                ranks[frame] = rank++;
        for (std::size_t frame = 0; frame < seen_.size(); ++frame)
            if (!seen_[frame])
                ranks[frame] = rank++;
        return ranks;
    }

private:
    bool mark(std::uint64_t frame) {
        if (frame >= seen_.size() || seen_[frame])
            return false;
        seen_[frame] = true;
        return true;
    }

    std::span<const std::byte> memory_;
    std::vector<bool> seen_;
    std::vector<std::uint32_t> tables_, read_only_, writable_;
};

} // namespace

std::vector<std::uint32_t> address_ranks(std::span<const std::byte> memory, std::uint64_t root) {
    Walk walk(memory);
    walk.visit_table(root / tinykvm::kPageSize, kLevels);
    return walk.ranks();
}

} // namespace kvmserver
