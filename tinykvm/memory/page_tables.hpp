// Guest page tables: four levels of ordinary guest frames that the host writes.
//
// Programs cannot write to them, but a hostile snapshot file can: an entry that points beyond memory counts as absent.
//
// A clone keeps a journal of the entries it changed, so that a reset can restore them and make the vCPU drop what it
// derived from them.
//
// An entry that maps a large page (LargePages) counts as the link to a table that it stands in for. Before something in
// that table is changed, the link replaces the entry, and stays there.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/memory/guest_ram.hpp"

namespace tinykvm {

// Entry bits (Intel SDM vol. 3, 4.5). kLazy and kNone are bits left to software. kLazy: the page has a frame but is not
// present, because the frame's bytes are still in the snapshot file or because of PROT_NONE.
namespace pte {
inline constexpr std::uint64_t kPresent = 1, kWrite = 2, kUser = 4, kAccessed = 0x20, kDirty = 0x40;
inline constexpr std::uint64_t kLarge = 0x80; // above the lowest level: maps a large page
inline constexpr std::uint64_t kLazy = 1ull << 9;
inline constexpr std::uint64_t kNone = 1ull << 10; // with kLazy: PROT_NONE
inline constexpr std::uint64_t kNoExecute = 1ull << 63;
inline constexpr std::uint64_t kAddress = 0x000f'ffff'ffff'f000;
inline bool mapped(std::uint64_t entry) { return (entry & (kPresent | kLazy)) != 0; }
// An address that does not fit a Frame gives ~0, a frame that no memory has. Truncated, it could be a valid one.
inline Frame frame(std::uint64_t entry) {
    const std::uint64_t number = (entry & kAddress) / kPageSize;
    return number < ~Frame{0} ? static_cast<Frame>(number) : ~Frame{0};
}
} // namespace pte

class PageTables {
public:
    // New tables with a root frame allocated from `ram`; throws HostError(ENOMEM) when there is none.
    explicit PageTables(GuestRam& ram);
    // Existing tables, of a clone.
    PageTables(GuestRam& ram, GuestPhys root);

    GuestPhys root() const { return root_; }

    // The leaf entry of an address; 0 when there is none.
    std::uint64_t get(GuestVirt at) const;
    // Sets the leaf entry, adding tables as needed; false when no frame is left for them.
    bool set(GuestVirt at, std::uint64_t entry);
    // Calls fn(address, entry) for each mapped leaf in [begin, end), in order; fn returns the new entry.
    void update(GuestVirt begin, GuestVirt end, const std::function<std::uint64_t(GuestVirt, std::uint64_t)>& fn);

    // Calls fn with each frame that holds a table, the root first. The tables of a tampered snapshot may form a cycle,
    // so a walk visits at most as many tables as there are frames.
    void for_each_table(const std::function<void(Frame)>& fn) const;

    // Calls fn with the frame of each leaf whose dirty bit the CPU or set() has set, and clears the bit. Descends only
    // where accessed bits are set, and clears those, too. Therefore both must have been clear before (clear_marks()).
    void take_dirty(const std::function<void(Frame)>& fn);

    void start_journal() { journaling_ = true; }
    // Clone only: frees the tables that were added since the journal began. No entry may link to them any more.
    void forget_own_tables();
    struct Change {
        GuestPhys at; // of the entry
        std::uint64_t before;
    };
    const std::vector<Change>& journal() const { return journal_; }
    void clear_journal() {
        journal_.clear();
        journal_room_ = kJournalRoom;
    }
    // Makes a lazy entry present. If the image has the same entry, this is no change of the machine, because only the
    // frame's bytes have arrived: the image's entry is changed, too, and no reset undoes it.
    void set_present(GuestVirt at);

private:
    std::uint64_t* table(GuestPhys at) const { return reinterpret_cast<std::uint64_t*>(ram_->host(at)); }
    // Address of the leaf entry, or nullopt.
    std::optional<GuestPhys> find(GuestVirt at) const;
    void write(GuestPhys at, std::uint64_t entry);
    // Call this before a leaf of the table that the entry at `at` links to is changed. Replaces a large page by its
    // link.
    void use_table(GuestPhys at);
    // Keeps only the oldest change of each entry, so that the journal of a program that changes the same pages over and
    // over does not grow.
    void compact_journal();
    static constexpr std::size_t kJournalRoom = 64 << 10;

    std::optional<Frame> table_for(GuestVirt at, int shift);

    GuestRam* ram_;
    GuestPhys root_;
    // Clone only: added tables, by the addresses they map. The same addresses get the same table each time, because
    // KVM's shadow pages keep links between tables after a reset has undone them.
    std::unordered_map<std::uint64_t, Frame> own_tables_;
    bool own_tables_used_ = false;
    bool journaling_ = false;
    std::vector<Change> journal_;
    std::size_t journal_room_ = kJournalRoom;
};

} // namespace tinykvm
