#include "src/unique/machine_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <functional>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/zero.hpp"

namespace kvmserver::unique {

using namespace tinykvm;

namespace {

// Calls fn(address, page table entry) for each page of the program in order.
class Pages {
public:
    explicit Pages(const MachineImage& image) : image_(&image), left_(image.image->frames()) {}

    void visit(const std::function<void(std::uint64_t, std::uint64_t)>& fn) { visit(image_->root, 3, 0, fn); }

private:
    void visit(GuestPhys table, int level, std::uint64_t virt,
               const std::function<void(std::uint64_t, std::uint64_t)>& fn) {
        Image& memory = *image_->image;
        if (frame_of(table) >= memory.frames() || left_ == 0)
            return;
        --left_; // page tables of a tampered snapshot may form cycles
        memory.ensure(frame_of(table));
        for (std::uint64_t i = 0; i < kPageSize / sizeof(std::uint64_t); ++i) {
            std::uint64_t entry;
            std::memcpy(&entry, memory.data() + table.value + i * sizeof(entry), sizeof(entry));
            const std::uint64_t at = virt | i << (12 + 9 * level);
            if (!pte::mapped(entry) || pte::frame(entry) >= memory.frames() || at >= layout::kUserMax)
                continue;
            if (level == 0)
                fn(at, entry);
            else
                visit(GuestPhys(entry & pte::kAddress), level - 1, at, fn);
        }
    }
    const MachineImage* image_;
    std::uint32_t left_;
};

// The program's regions; neighbours with equal rights and name are merged.
std::vector<Area> areas_of(const AddressSpace::Regions& regions) {
    std::vector<Area> areas;
    for (const auto& [begin, region] : regions) {
        if (begin >= layout::kUserMax)
            break;
        if (region.prot == PROT_NONE)
            continue; // an address space reservation, perhaps of terabytes
        if (!areas.empty() && areas.back().end.value == begin && areas.back().prot == region.prot &&
            areas.back().name == region.name)
            areas.back().end = GuestVirt(region.end);
        else
            areas.push_back({GuestVirt(begin), GuestVirt(region.end), region.prot, region.name, {}});
    }
    return areas;
}

// Puts frames of an image in place: long runs as mappings, which cost nothing until they are read, others as copies.
class Placer {
public:
    explicit Placer(const Image& image) : image_(&image), may_map_(image.is_whole()) {}

    void put(std::byte* to, Frame frame) {
        if (count_ != 0 && to == to_ + count_ * kPageSize && frame == first_ + count_) {
            ++count_;
            return;
        }
        finish();
        to_ = to;
        first_ = frame;
        count_ = 1;
    }

    // Call after the last put().
    void finish() {
        constexpr std::uint32_t kWorthMapping = 16, kMaxMappings = 2048;
        const std::size_t bytes = std::size_t{count_} * kPageSize;
        if (may_map_ && count_ >= kWorthMapping && mappings_ < kMaxMappings) {
            if (::mmap(to_, bytes, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, image_->fd(),
                       static_cast<off_t>(frame_address(first_).value)) == MAP_FAILED)
                throw_errno("map the program's memory");
            ++mappings_;
        } else if (count_ != 0) {
            std::memcpy(to_, image_->data() + frame_address(first_).value, bytes);
        }
        count_ = 0;
    }

private:
    const Image* image_;
    bool may_map_;
    std::uint32_t mappings_ = 0;
    std::byte* to_ = nullptr; // the run that is not put yet
    Frame first_ = 0;
    std::uint32_t count_ = 0;
};

} // namespace

MachineMemory::MachineMemory(const MachineImage& image) {
    std::vector<Area> areas = areas_of(*image.regions);
    for (Area& area : areas) {
        copies_.push_back(Mapping::map(area.end.value - area.begin.value, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0,
                                       "copy of the program's memory"));
        area.bytes = copies_.back().bytes();
    }
    std::vector<Written> written;
    std::vector<Range> own;
    Placer placer(*image.image);
    std::size_t area = 0; // visit() goes by ascending address
    Pages(image).visit([&](std::uint64_t at, std::uint64_t entry) {
        const Frame frame = pte::frame(entry);
        while (area < areas.size() && areas[area].end.value <= at)
            ++area;
        if (area == areas.size() || at < areas[area].begin.value)
            return;
        if (constexpr std::uint64_t kOwn = pte::kWrite | pte::kUser; areas[area].writable() && (entry & kOwn) == kOwn) {
            if (!own.empty() && own.back().end.value == at)
                own.back().end = GuestVirt(at + kPageSize);
            else
                own.push_back({GuestVirt(at), GuestVirt(at + kPageSize)});
        }
        if (image.image->is_hole(frame))
            return;
        image.image->ensure(frame);
        std::byte* to = copies_[area].data() + (at - areas[area].begin.value);
        if (!areas[area].writable()) {
            placer.put(to, frame);
            return;
        }
        if (is_zero(image.image->bytes().subspan(frame_address(frame).value, kPageSize)))
            return;
        placer.put(to, frame);
        if (!written.empty() && written.back().bytes.data() + written.back().bytes.size() == to &&
            written.back().begin >= areas[area].begin)
            written.back().bytes = {written.back().bytes.data(), written.back().bytes.size() + kPageSize};
        else
            written.push_back({GuestVirt(at), {to, kPageSize}});
    });
    placer.finish();
    view_ = MemoryView(std::move(areas), std::move(written), std::move(own));
}

} // namespace kvmserver::unique
