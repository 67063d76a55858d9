// The host's side of the connection table (abi::Conn): every value is read once and checked before use.
#pragma once
#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {

// A validated copy of one slot as the guest left it: offsets are within the buffers.
struct ConnView {
    std::uint32_t state = abi::kConnFree;
    std::uint32_t rx_off = 0, rx_len = 0, tx_off = 0, tx_len = 0;
    bool eof = false, shut_write = false, want_rx = false, want_tx = false, reset = false;
    std::uint32_t rx_room() const { return abi::kRxBytes - rx_len; }
    std::uint32_t tx_pending() const { return tx_len - tx_off; }
};

// The connection table of one machine. Does not own the table. For the machine's thread only.
class Connections {
public:
    Connections(AddressSpace& space, abi::Shared* shared, abi::Conn* table);

    // Puts a new connection into a free slot, for the guest to accept. nullopt when all slots are in use.
    std::optional<std::uint32_t> offer(std::uint32_t listener, std::span<const std::uint8_t> peer,
                                       std::span<const std::uint8_t> local);
    // Puts a connection that the guest makes into a free slot. nullopt when all are in use.
    std::optional<std::uint32_t> open(std::span<const std::uint8_t> peer, std::span<const std::uint8_t> local);
    // For an image: connections cannot go on in its clones. The program will see a reset.
    void lose_all();
    // Reads a slot. False when the guest broke the contract and the slot's values are invalid.
    bool view(std::uint32_t slot, ConnView& out) const;
    // Appends the host ranges of the rx buffer's free part (for one readv) or of the tx buffer's unsent part. False
    // when the guest's memory is not accessible.
    bool rx_ranges(std::uint32_t slot, const ConnView& view, std::vector<iovec>& out) const;
    bool tx_ranges(std::uint32_t slot, const ConnView& view, std::vector<iovec>& out) const;
    // Account for bytes that were read into rx_ranges() or sent from tx_ranges().
    void received(std::uint32_t slot, const ConnView& view, std::uint32_t bytes);
    void sent(std::uint32_t slot, const ConnView& view, std::uint32_t bytes);
    void set_eof(std::uint32_t slot) { table_[slot].rx_eof = 1; }
    void set_error(std::uint32_t slot, int error) { table_[slot].error = static_cast<std::uint8_t>(error); }
    void free(std::uint32_t slot);
    std::uint32_t limit() const;        // all slots in use are below it
    bool used() const { return used_; } // whether there ever was a connection

private:
    std::optional<std::uint32_t> put(std::uint32_t state, std::uint32_t listener, std::span<const std::uint8_t> peer,
                                     std::span<const std::uint8_t> local);
    AddressSpace* space_;
    abi::Shared* shared_;
    abi::Conn* table_;
    bool used_ = false;
};

} // namespace tinykvm
