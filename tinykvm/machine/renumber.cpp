#include "tinykvm/machine/renumber.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace tinykvm {
namespace {

constexpr Frame kNone = ~Frame{0};

class Renumbering {
public:
    explicit Renumbering(const Image& from) : from_(&from), to_(from.frames(), kNone), found_(from.frames()) {}

    // Call this after find(). Ignores frames that find() has not seen.
    void add(Frame frame) {
        if (frame < to_.size() && to_[frame] == kNone && found_[frame]) {
            to_[frame] = static_cast<Frame>(order_.size());
            order_.push_back(frame);
        }
    }

    // Collects `table`, the tables below it and the frames that they map.
    void find(Frame table, int level) {
        if (table >= to_.size() || is_table(table))
            throw UserError(ExitCode::bad_snapshot, "the page tables of the machine are no tree");
        tables_.push_back(table);
        found_[table] = true;
        for (unsigned i = 0; i < kEntries; ++i) {
            const std::uint64_t entry = entry_of(table, i);
            const Frame next = pte::frame(entry);
            if (!pte::mapped(entry) || next >= to_.size())
                continue;
            if (level > 0) {
                find(next, level - 1);
            } else {
                pages_.push_back(next);
                found_[next] = true;
            }
        }
    }

    std::shared_ptr<Image> copy() {
        for (const Frame table : tables_)
            add(table);
        for (const Frame page : pages_)
            add(page);
        auto image = Image::create(static_cast<std::uint32_t>(order_.size()));
        const std::vector<bool> data = frames_with_data();
        // By fill(), for runs that are runs in both images: a write through the mapping would fault for each page. On
        // one thread: two that write into one memfd wait for each other.
        for (std::size_t first = 0; first < order_.size();) {
            std::size_t end = first + 1;
            if (data[order_[first]]) {
                while (end < order_.size() && order_[end] == order_[end - 1] + 1 && data[order_[end]])
                    ++end;
                image->fill(static_cast<Frame>(first),
                            from_->bytes().subspan(std::size_t{order_[first]} * kPageSize, (end - first) * kPageSize));
            }
            first = end;
        }
        for (const Frame table : tables_)
            translate(*image, to_[table]);
        return image;
    }

    Frame of(Frame frame) const { return frame < to_.size() ? to_[frame] : kNone; }

private:
    static constexpr unsigned kEntries = 512;

    // By the old number. The others are holes: reading them would allocate them.
    std::vector<bool> frames_with_data() const {
        std::vector<bool> data(to_.size());
        for (off_t at = 0; (at = ::lseek(from_->fd(), at, SEEK_DATA)) >= 0;) {
            const off_t end = ::lseek(from_->fd(), at, SEEK_HOLE);
            if (end < 0)
                break;
            constexpr auto kPage = static_cast<off_t>(kPageSize);
            std::fill(data.begin() + at / kPage, data.begin() + end / kPage, true);
            at = end;
        }
        if (errno != ENXIO) // no more data: the regular end
            throw_errno("lseek image");
        return data;
    }
    bool is_table(Frame frame) const { return std::find(tables_.begin(), tables_.end(), frame) != tables_.end(); }
    std::uint64_t entry_of(Frame table, unsigned i) const {
        std::uint64_t entry;
        std::memcpy(&entry, from_->data() + std::size_t{table} * kPageSize + i * sizeof(entry), sizeof(entry));
        return entry;
    }
    void translate(Image& image, Frame table) const {
        auto* entries = reinterpret_cast<std::uint64_t*>(image.data() + std::size_t{table} * kPageSize);
        for (unsigned i = 0; i < kEntries; ++i)
            if (pte::mapped(entries[i]) && pte::frame(entries[i]) < to_.size())
                entries[i] = (entries[i] & ~pte::kAddress) | frame_address(to_[pte::frame(entries[i])]).value;
    }

    const Image* from_;
    std::vector<Frame> to_;    // by the old number
    std::vector<bool> found_;  // by the old number
    std::vector<Frame> order_; // old numbers
    std::vector<Frame> tables_, pages_;
};

} // namespace

std::shared_ptr<MachineImage> renumber(const MachineImage& image, std::span<const Frame> first) {
    Renumbering frames(*image.image);
    frames.find(frame_of(image.root), 3);
    for (const Frame frame : first)
        frames.add(frame);
    auto out = std::make_shared<MachineImage>(image);
    out->image = frames.copy();
    out->root = frame_address(frames.of(frame_of(image.root)));
    std::vector<Frame> written;
    for (const FrameRun& run : image.working_set)
        for (Frame frame = run.first; frame < run.first + run.count; ++frame)
            if (const Frame to = frames.of(frame); to != kNone)
                written.push_back(to);
    std::sort(written.begin(), written.end());
    out->working_set.clear();
    for (const Frame frame : written)
        append_frame(out->working_set, frame);
    return out;
}

} // namespace tinykvm
