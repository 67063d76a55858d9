#include "tinykvm/machine/connections.hpp"

#include <algorithm>
#include <cerrno>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/must_hold.hpp"
#include "tinykvm/machine/read_once.hpp"

namespace tinykvm {
namespace {

GuestVirt rx_buffer(std::uint32_t slot) {
    return GuestVirt(layout::kConnBuffers + std::uint64_t{slot} * (abi::kRxBytes + abi::kTxBytes));
}
GuestVirt tx_buffer(std::uint32_t slot) { return rx_buffer(slot) + abi::kRxBytes; }

} // namespace

Connections::Connections(AddressSpace& space, abi::Shared* shared, abi::Conn* table)
    : space_(&space), shared_(shared), table_(table) {}

std::uint32_t Connections::limit() const { return std::min(once(shared_->conn_limit), abi::kMaxConns); }

std::optional<std::uint32_t> Connections::offer(std::uint32_t listener, std::span<const std::uint8_t> peer,
                                                std::span<const std::uint8_t> local) {
    const auto slot = put(abi::kConnOffered, listener, peer, local);
    if (slot)
        shared_->offered = shared_->offered + 1;
    return slot;
}

std::optional<std::uint32_t> Connections::open(std::span<const std::uint8_t> peer,
                                               std::span<const std::uint8_t> local) {
    return put(abi::kConnOpen, 0, peer, local);
}

void Connections::lose_all() {
    for (std::uint32_t slot = 0; slot < limit(); ++slot)
        if (once(table_[slot].state) == abi::kConnOpen)
            set_error(slot, ECONNRESET);
}

std::optional<std::uint32_t> Connections::put(std::uint32_t state, std::uint32_t listener,
                                              std::span<const std::uint8_t> peer, std::span<const std::uint8_t> local) {
    std::uint32_t slot = 0;
    while (slot < abi::kMaxConns && once(table_[slot].state) != abi::kConnFree)
        ++slot;
    if (slot == abi::kMaxConns)
        return std::nullopt;
    const std::uint32_t serial = table_[slot].serial + 1;
    abi::Conn conn{};
    conn.state = state;
    conn.listener = listener;
    conn.serial = serial;
    conn.peer_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(peer.size(), abi::kAddressBytes));
    conn.local_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(local.size(), abi::kAddressBytes));
    std::copy_n(peer.begin(), conn.peer_bytes, conn.peer);
    std::copy_n(local.begin(), conn.local_bytes, conn.local);
    table_[slot] = conn;
    used_ = true;
    shared_->conn_limit = std::max(limit(), slot + 1);
    return slot;
}

bool Connections::view(std::uint32_t slot, ConnView& out) const {
    must_hold(slot < abi::kMaxConns);
    const abi::Conn& c = table_[slot];
    out.state = once(c.state);
    out.rx_off = once(c.rx_off);
    out.rx_len = once(c.rx_len);
    out.tx_off = once(c.tx_off);
    out.tx_len = once(c.tx_len);
    out.eof = once(c.rx_eof) != 0;
    out.shut_write = once(c.shut_write) != 0;
    out.want_rx = once(c.want_rx) != 0;
    out.want_tx = once(c.want_tx) != 0;
    out.reset = once(c.reset) != 0;
    return out.state <= abi::kConnClosed && out.rx_off <= out.rx_len && out.rx_len <= abi::kRxBytes &&
           out.tx_off <= out.tx_len && out.tx_len <= abi::kTxBytes;
}

bool Connections::rx_ranges(std::uint32_t slot, const ConnView& v, std::vector<iovec>& out) const {
    // Gathered for reading, because received() records the write, for the bytes that really arrive.
    return space_->gather(rx_buffer(slot) + v.rx_len, v.rx_room(), Access::read, out);
}

bool Connections::tx_ranges(std::uint32_t slot, const ConnView& v, std::vector<iovec>& out) const {
    return space_->gather(tx_buffer(slot) + v.tx_off, v.tx_pending(), Access::read, out);
}

void Connections::received(std::uint32_t slot, const ConnView& v, std::uint32_t bytes) {
    space_->note_host_write(rx_buffer(slot) + v.rx_len, bytes);
    table_[slot].rx_len = v.rx_len + bytes;
}

void Connections::sent(std::uint32_t slot, const ConnView& v, std::uint32_t bytes) {
    const std::uint32_t off = v.tx_off + bytes;
    table_[slot].tx_off = off == v.tx_len ? 0 : off;
    table_[slot].tx_len = off == v.tx_len ? 0 : v.tx_len;
}

void Connections::free(std::uint32_t slot) {
    const std::uint32_t serial = table_[slot].serial;
    table_[slot] = abi::Conn{};
    table_[slot].serial = serial;
    std::uint32_t top = limit();
    while (top > 0 && once(table_[top - 1].state) == abi::kConnFree)
        --top;
    shared_->conn_limit = top;
}

} // namespace tinykvm
