// The memory of a guest without a machine, with holes. Also for tests/fuzz: no Catch2 here.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "tinykvm/memory/guest_memory.hpp"

namespace tinykvm::test {

// Every guest page is an allocation of its own, so that a buffer of many pages has as many host ranges.
class FakeMemory : public GuestMemory {
public:
    void map(std::uint64_t at, std::uint64_t bytes, bool writable = true) {
        for (std::uint64_t page = page_down(at); page < at + bytes; page += kPageSize)
            pages_[page] = {std::make_unique<std::array<std::byte, kPageSize>>(), writable};
    }
    bool gather(GuestVirt at, std::uint64_t length, Access access, std::vector<iovec>& out) override {
        if (at.value + length < at.value)
            return false;
        gathered += length;
        const std::size_t before = out.size();
        std::uint64_t from = at.value;
        while (length > 0) {
            const auto page = pages_.find(page_down(from));
            if (page == pages_.end() || (access == Access::write && !page->second.writable)) {
                out.resize(before);
                return false;
            }
            const std::uint64_t offset = from & (kPageSize - 1);
            const std::uint64_t piece = std::min(length, kPageSize - offset);
            out.push_back({page->second.bytes->data() + offset, piece});
            from += piece;
            length -= piece;
        }
        return true;
    }
    std::uint64_t gathered = 0;

private:
    struct Page {
        std::unique_ptr<std::array<std::byte, kPageSize>> bytes;
        bool writable = true;
    };
    std::map<std::uint64_t, Page> pages_;
};

} // namespace tinykvm::test
