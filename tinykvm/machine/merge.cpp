// Merges the changes of a clone into its image, in place. Other parts of the image are not read, so they may still be
// loading.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tinykvm/base/zero.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/memory/dirty_pages.hpp"

namespace tinykvm {
namespace {

// Numbers the frames that a clone has beyond its image: with the numbers of frames that it no longer uses, and then
// with those that are appended to it. Without the former a machine that is saved and goes on, again and again, would
// grow.
class AddedFrames {
public:
    // `free`: frames of the image that nothing maps.
    AddedFrames(const GuestRam& ram, std::vector<Frame> free) : ram_(ram), free_(std::move(free)) {}

    bool has(Frame frame) const { return frame >= ram_.image_frames(); }
    std::uint32_t appended() const {
        return frames_.size() > free_.size() ? static_cast<std::uint32_t>(frames_.size() - free_.size()) : 0;
    }
    std::span<const Frame> still_free() const {
        return std::span<const Frame>(free_).subspan(std::min(frames_.size(), free_.size()));
    }
    void add(Frame frame) {
        if (has(frame) && ram_.valid(frame) && number_.try_emplace(frame, next()).second)
            frames_.push_back(frame);
    }
    // The new number of a frame; frames of the image keep theirs. nullopt when it was not added.
    std::optional<Frame> of(Frame frame) const {
        if (!has(frame))
            return frame;
        const auto found = number_.find(frame);
        return found == number_.end() ? std::nullopt : std::optional(found->second);
    }
    const std::vector<Frame>& frames() const { return frames_; }

private:
    Frame next() const {
        const std::size_t at = frames_.size();
        return at < free_.size() ? free_[at] : ram_.image_frames() + static_cast<Frame>(at - free_.size());
    }

    const GuestRam& ram_;
    std::vector<Frame> free_;
    std::vector<Frame> frames_;
    std::unordered_map<Frame, Frame> number_;
};

std::span<std::uint64_t> entries_at(std::byte* table) {
    return {reinterpret_cast<std::uint64_t*>(table), kPageSize / sizeof(std::uint64_t)};
}

} // namespace

std::shared_ptr<MachineImage> Machine::merge_into(std::shared_ptr<Image> memory, std::vector<Frame>* replaced,
                                                  std::vector<Frame>* unused) && {
    auto out = describe();
    std::vector<Frame> tables;
    space_.tables().for_each_table([&](Frame frame) { tables.push_back(frame); });
    std::ranges::sort(tables); // tables of a tampered image may link to each other
    tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
    std::vector<bool> used(ram_.image_frames());
    const auto use = [&](Frame frame) {
        if (frame < used.size())
            used[frame] = true;
    };
    for (const Frame table : tables) {
        use(table);
        for (const std::uint64_t entry : entries_at(ram_.host(frame_address(table))))
            if (pte::mapped(entry))
                use(pte::frame(entry));
    }
    std::vector<Frame> free;
    for (Frame frame = 0; frame < used.size(); ++frame)
        if (!used[frame])
            free.push_back(frame);

    Frame first = 0; // of those to be written
    std::vector<const std::byte*> pages;
    const auto write = [&] {
        if (!pages.empty())
            memory->replace(first, std::span<const std::byte* const>(pages));
        pages.clear();
    };
    const auto replace = [&](Frame frame, std::span<const std::byte> page) {
        if (!pages.empty() && frame != first + pages.size())
            write();
        if (pages.empty())
            first = frame;
        pages.push_back(page.data());
        if (replaced)
            replaced->push_back(frame);
    };
    for (const Frame frame : private_pages(ram_.host(GuestPhys(0)), ram_.image_frames()))
        if (const auto page = ram_.frame_bytes(frame);
            used[frame] && (!memory->is_hole(frame) || !is_zero(page) ||
                            !is_zero(memory->bytes().subspan(frame_address(frame).value, kPageSize))))
            replace(frame, page);
    write();

    const LargePages* const large = memory->large();
    AddedFrames added(ram_, std::move(free));
    for (const Frame table : tables)
        for (const std::uint64_t entry : entries_at(ram_.host(frame_address(table))))
            if (pte::mapped(entry))
                added.add(pte::frame(entry)); // also adds tables: all but the root are linked from another table
    memory->grow(added.appended());
    for (const Frame frame : added.frames())
        if (const auto page = ram_.frame_bytes(frame); *added.of(frame) < ram_.image_frames() || !is_zero(page))
            replace(*added.of(frame), page);
    write();
    if (unused)
        unused->assign(added.still_free().begin(), added.still_free().end());
    for (const Frame table : tables)
        for (std::uint64_t& entry : entries_at(memory->data() + frame_address(*added.of(table)).value)) {
            if (const auto link = large ? large->link(entry) : std::nullopt) {
                entry = *link; // the result has no large pages
                continue;
            }
            if (!pte::mapped(entry) || !added.has(pte::frame(entry)))
                continue;
            const auto to = added.of(pte::frame(entry));
            entry = to ? (entry & ~pte::kAddress) | frame_address(*to).value
                       : 0; // an entry that pointed beyond memory must not point to an appended frame
        }
    out->image = std::move(memory);
    return out;
}

} // namespace tinykvm
