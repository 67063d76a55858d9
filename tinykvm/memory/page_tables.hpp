// Guest page tables: four levels of ordinary guest frames that the host writes.
//
// No program can write to them, but a snapshot file may hold any: an entry that points beyond memory counts as absent.
//
// A clone keeps a journal of the entries it changed, so that a reset can put them back and make the vCPU
// forget what it derived from them.
//
// An entry that maps a large page (LargePages) counts as the link to a table that it stands in for; when something in
// that table is to be changed, the link is put in its place first, and stays there.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/memory/guest_ram.hpp"

namespace tinykvm {

// Entry bits (Intel SDM vol. 3, 4.5). kLazy is one of those left to software: not present yet, because the
// frame's bytes are still in the snapshot file.
namespace pte {
inline constexpr std::uint64_t kPresent = 1, kWrite = 2, kUser = 4, kAccessed = 0x20, kDirty = 0x40;
inline constexpr std::uint64_t kLarge = 0x80; // above the lowest level: maps a large page
inline constexpr std::uint64_t kLazy = 1ull << 9;
inline constexpr std::uint64_t kNone = 1ull << 10; // PROT_NONE: tells such an entry from one that is only lazy
inline constexpr std::uint64_t kNoExecute = 1ull << 63;
inline constexpr std::uint64_t kAddress = 0x000f'ffff'ffff'f000;
inline bool mapped(std::uint64_t entry) { return (entry & (kPresent | kLazy)) != 0; }
// A frame no memory has where the address does not fit a Frame: cut off, it would look like a sound one.
inline Frame frame(std::uint64_t entry) {
    const std::uint64_t number = (entry & kAddress) / kPageSize;
    return number < ~Frame{0} ? static_cast<Frame>(number) : ~Frame{0};
}
} // namespace pte

class PageTables {
public:
    // New tables with a root frame allocated from `ram`; throws HostError(ENOMEM) when there is none.
    explicit PageTables(GuestRam& ram);
    // Tables found in a clone or a restored machine.
    PageTables(GuestRam& ram, GuestPhys root);

    GuestPhys root() const { return root_; }

    // The leaf entry of an address; 0 when there is none.
    std::uint64_t get(GuestVirt at) const;
    // Sets it, adding tables as needed; false when no frame is left for them.
    bool set(GuestVirt at, std::uint64_t entry);
    // Calls fn(address, entry) for each mapped leaf in [begin, end), in order; fn returns the new entry.
    void update(GuestVirt begin, GuestVirt end, const std::function<std::uint64_t(GuestVirt, std::uint64_t)>& fn);

    // Calls fn with each frame that holds tables, the root first. (Tables of a tampered snapshot may lead to each other
    // in a circle: no walk looks at more tables than there are frames in all.)
    void for_each_table(const std::function<void(Frame)>& fn) const;

    // Calls fn with the frame of each leaf whose dirty bit the CPU (or set()) has set, and clears the bit. Goes only
    // where the CPU's accessed bits lead, and clears those too; so both must have been clear before (clear_marks).
    void take_dirty(const std::function<void(Frame)>& fn);

    void start_journal() { journaling_ = true; }
    // Clone only: what was added since the journal began is gone.
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
    // Makes a lazy entry present. Where the image's own entry is the same one, this is no change of the
    // machine (the frame's bytes arrived): it is made in the image too and no reset undoes it.
    void set_present(GuestVirt at);

private:
    std::uint64_t* table(GuestPhys at) const { return reinterpret_cast<std::uint64_t*>(ram_->host(at)); }
    // Address of the leaf entry, or nullopt.
    std::optional<GuestPhys> find(GuestVirt at) const;
    void write(GuestPhys at, std::uint64_t entry);
    // Before a leaf of the table that the entry links to is changed.
    void use_table(GuestPhys at);
    // Keeps the oldest change of each entry: a program that changes the same pages over and over takes no more memory.
    void compact_journal();
    static constexpr std::size_t kJournalRoom = 64 << 10;

    std::optional<Frame> table_for(GuestVirt at, int shift);

    GuestRam* ram_;
    GuestPhys root_;
    // Of a clone, by what they map: the same addresses get the same table each time, because KVM's shadow pages keep
    // the links between tables that a reset undoes.
    std::unordered_map<std::uint64_t, Frame> own_tables_;
    bool own_tables_used_ = false;
    bool journaling_ = false;
    std::vector<Change> journal_;
    std::size_t journal_room_ = kJournalRoom;
};

} // namespace tinykvm
