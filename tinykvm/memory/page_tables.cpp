#include "tinykvm/memory/page_tables.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "tinykvm/base/error.hpp"

namespace tinykvm {
namespace {

constexpr int kLeafShift = 12;
constexpr int kTopShift = 39;

std::uint64_t index(GuestVirt at, int shift) { return (at.value >> shift) & 511; }
GuestPhys entry_at(GuestPhys table, std::uint64_t i) { return table + i * 8; }

} // namespace

PageTables::PageTables(GuestRam& ram) : ram_(&ram) {
    const auto frame = ram.allocate(1);
    if (!frame)
        throw HostError(ENOMEM, "page-table root");
    root_ = frame_address(*frame);
}

PageTables::PageTables(GuestRam& ram, GuestPhys root) : ram_(&ram), root_(root) {}

std::optional<GuestPhys> PageTables::find(GuestVirt at) const {
    GuestPhys here = root_;
    for (int shift = kTopShift; shift > kLeafShift; shift -= 9) {
        const std::uint64_t link = ram_->link(table(here)[index(at, shift)]);
        if (link == 0)
            return std::nullopt;
        here = GuestPhys(link & pte::kAddress);
    }
    return entry_at(here, index(at, kLeafShift));
}

std::uint64_t PageTables::get(GuestVirt at) const {
    const auto where = find(at);
    if (!where)
        return 0;
    const std::uint64_t entry = *reinterpret_cast<std::uint64_t*>(ram_->host(*where));
    return ram_->valid(pte::frame(entry)) ? entry : 0;
}

void PageTables::write(GuestPhys at, std::uint64_t entry) {
    auto* where = reinterpret_cast<std::uint64_t*>(ram_->host(at));
    // Changes in tables that the clone added need no undoing: a reset drops these tables.
    if (journaling_ && frame_of(at) < ram_->image_frames()) {
        if (journal_.size() >= journal_room_)
            compact_journal();
        journal_.push_back({at, *where});
    }
    *where = entry;
}

void PageTables::use_table(GuestPhys at) {
    auto& entry = *reinterpret_cast<std::uint64_t*>(ram_->host(at));
    if (!(entry & pte::kLarge))
        return;
    // Not in the journal: the link is equivalent to the large page, and a program that does this once will do it again.
    entry = ram_->link(entry) | pte::kAccessed;
    ram_->drop_large_translations();
}

void PageTables::compact_journal() {
    std::stable_sort(journal_.begin(), journal_.end(), [](const Change& a, const Change& b) { return a.at < b.at; });
    journal_.erase(
        std::unique(journal_.begin(), journal_.end(), [](const Change& a, const Change& b) { return a.at == b.at; }),
        journal_.end());
    journal_room_ = std::max(kJournalRoom, journal_.size() * 2);
}

std::optional<Frame> PageTables::table_for(GuestVirt at, int shift) {
    if (!journaling_)
        return ram_->allocate_table();
    own_tables_used_ = true;
    const std::uint64_t key = (at.value >> shift) << 6 | static_cast<unsigned>(shift);
    if (const auto known = own_tables_.find(key); known != own_tables_.end())
        return ram_->use_table() ? std::optional(known->second) : std::nullopt;
    const auto frame = ram_->allocate_table();
    if (frame)
        own_tables_.emplace(key, *frame);
    return frame;
}

void PageTables::forget_own_tables() {
    if (!own_tables_used_)
        return;
    own_tables_used_ = false;
    ram_->clear_tables();
    if (ram_->renew_tables())
        own_tables_.clear();
}

bool PageTables::set(GuestVirt at, std::uint64_t entry) {
    GuestPhys here = root_;
    for (int shift = kTopShift; shift > kLeafShift; shift -= 9) {
        const GuestPhys where = entry_at(here, index(at, shift));
        std::uint64_t next = *reinterpret_cast<std::uint64_t*>(ram_->host(where));
        if (!(next & pte::kPresent)) {
            const auto frame = table_for(at, shift);
            if (!frame)
                return false;
            next = frame_address(*frame).value | pte::kPresent | pte::kWrite | pte::kUser | pte::kAccessed;
            write(where, next);
        } else if (!(next & pte::kAccessed)) {
            // `entry` may have a dirty bit (a page that moved), and take_dirty() must be able to find it.
            *reinterpret_cast<std::uint64_t*>(ram_->host(where)) = next | pte::kAccessed;
        }
        next = ram_->link(next);
        if (next == 0)
            return false;
        use_table(where);
        here = GuestPhys(next & pte::kAddress);
    }
    write(entry_at(here, index(at, kLeafShift)), entry);
    return true;
}

void PageTables::update(GuestVirt begin, GuestVirt end,
                        const std::function<std::uint64_t(GuestVirt, std::uint64_t)>& fn) {
    std::uint64_t at = begin.value;
    while (at < end.value) {
        GuestPhys here = root_, upper;
        int shift = kTopShift;
        std::uint64_t link = 0;
        for (; shift > kLeafShift; shift -= 9) {
            upper = entry_at(here, index(GuestVirt(at), shift));
            link = ram_->link(*reinterpret_cast<std::uint64_t*>(ram_->host(upper)));
            if (link == 0)
                break;
            here = GuestPhys(link & pte::kAddress);
        }
        if (link == 0) { // nothing below this entry: skip to the next one at this level
            at = ((at >> shift) + 1) << shift;
            continue;
        }
        const std::uint64_t stop = std::min(end.value, ((at >> 21) + 1) << 21);
        for (; at < stop; at += kPageSize) {
            const GuestPhys where = entry_at(here, index(GuestVirt(at), kLeafShift));
            const std::uint64_t entry = *reinterpret_cast<std::uint64_t*>(ram_->host(where));
            if (!pte::mapped(entry) || !ram_->valid(pte::frame(entry)))
                continue;
            const std::uint64_t changed = fn(GuestVirt(at), entry);
            if (changed != entry) {
                use_table(upper);
                write(where, changed);
            }
        }
    }
}

void PageTables::for_each_table(const std::function<void(Frame)>& fn) const {
    Frame left = ram_->high() + ram_->tables();
    const std::function<void(GuestPhys, int)> visit = [&](GuestPhys at, int shift) {
        if (left == 0)
            return;
        --left;
        fn(frame_of(at));
        if (shift == kLeafShift)
            return;
        for (std::uint64_t i = 0; i < 512; ++i) {
            if (const std::uint64_t link = ram_->link(table(at)[i]))
                visit(GuestPhys(link & pte::kAddress), shift - 9);
        }
    };
    visit(root_, kTopShift);
}

void PageTables::take_dirty(const std::function<void(Frame)>& fn) {
    Frame left = ram_->high() + ram_->tables();
    const std::function<void(GuestPhys, int)> visit = [&](GuestPhys at, int shift) {
        if (left == 0)
            return;
        --left;
        std::uint64_t* entries = table(at);
        for (std::uint64_t i = 0; i < 512; ++i) {
            const std::uint64_t entry = entries[i];
            if (!ram_->valid(pte::frame(entry)))
                continue;
            if (shift == kLeafShift) {
                // Includes pages that have become PROT_NONE since they were written to.
                if (pte::mapped(entry) && (entry & pte::kDirty)) {
                    entries[i] = entry & ~pte::kDirty;
                    fn(pte::frame(entry));
                }
            } else if ((entry & pte::kPresent) && (entry & pte::kAccessed)) {
                entries[i] = entry & ~pte::kAccessed;
                visit(GuestPhys(entry & pte::kAddress), shift - 9);
            }
        }
    };
    visit(root_, kTopShift);
}

void PageTables::set_present(GuestVirt at) {
    const auto where = find(at);
    if (!where)
        return;
    auto& own = *reinterpret_cast<std::uint64_t*>(ram_->host(*where));
    const std::uint64_t lazy = own;
    const std::uint64_t present = (lazy | pte::kPresent) & ~pte::kLazy;
    const Image* image = ram_->image();
    if (image && where->value < image->bytes().size()) {
        std::atomic_ref<std::uint64_t> pristine(*reinterpret_cast<std::uint64_t*>(image->data() + where->value));
        std::uint64_t seen = lazy;
        if (pristine.compare_exchange_strong(seen, present) || seen == present) {
            if (own != present) // this clone has its own copy of the table
                own = present;
            return;
        }
    }
    write(*where, present);
}

} // namespace tinykvm
