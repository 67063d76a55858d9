#include "tests/unit/memory/world.hpp"
#include "tinykvm/machine/connections.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {
struct Table {
    BootWorld world;
    std::vector<abi::Conn> conns = std::vector<abi::Conn>(abi::kMaxConns);
    abi::Shared shared{};
    Connections connections{world.space, &shared, conns.data()};
    Table() {
        world.space.place(GuestVirt(layout::kConnBuffers),
                          std::uint64_t{abi::kRxBytes + abi::kTxBytes} * abi::kMaxConns, kRw, 0,
                          "[connection buffers]");
    }
    std::uint32_t offer(std::uint32_t listener = 0) {
        const auto slot = connections.offer(listener, std::vector<std::uint8_t>{1, 2, 3}, std::vector<std::uint8_t>{4});
        REQUIRE(slot);
        return *slot;
    }
    std::uint64_t rx_room(std::uint32_t slot) {
        ConnView view;
        REQUIRE(connections.view(slot, view));
        std::vector<iovec> ranges;
        REQUIRE(connections.rx_ranges(slot, view, ranges));
        std::uint64_t bytes = 0;
        for (const iovec& r : ranges)
            bytes += r.iov_len;
        return bytes;
    }
};
} // namespace

TEST_CASE("a connection is offered in the lowest free slot") {
    Table t;
    CHECK(t.offer(3) == 0);
    CHECK(t.offer() == 1);
    CHECK(t.offer() == 2);
    CHECK(t.connections.limit() == 3);
    CHECK(t.shared.offered == 3);
    CHECK(t.conns[0].state == abi::kConnOffered);
    CHECK(t.conns[0].listener == 3);
    CHECK(t.conns[0].peer_bytes == 3);
    CHECK(t.conns[0].local_bytes == 1);
    const std::uint32_t serial = t.conns[1].serial;
    t.connections.free(1);
    CHECK(t.connections.limit() == 3);
    CHECK(t.offer() == 1);
    CHECK(t.conns[1].serial == serial + 1);
    t.connections.free(2);
    CHECK(t.connections.limit() == 2);
    t.connections.free(0);
    CHECK(t.connections.limit() == 2);
    t.connections.free(1);
    CHECK(t.connections.limit() == 0);
}

TEST_CASE("no more connections than slots") {
    Table t;
    for (std::uint32_t i = 0; i < abi::kMaxConns; ++i)
        REQUIRE(t.offer() == i);
    CHECK_FALSE(t.connections.offer(0, {}, {}));
    CHECK(t.connections.limit() == abi::kMaxConns);
    t.connections.free(abi::kMaxConns - 1);
    CHECK(t.offer() == abi::kMaxConns - 1);
}

TEST_CASE("addresses that are too long are cut") {
    Table t;
    const std::vector<std::uint8_t> longest(200, 7);
    const auto slot = t.connections.offer(0, longest, longest);
    REQUIRE(slot);
    CHECK(t.conns[*slot].peer_bytes == abi::kAddressBytes);
    CHECK(t.conns[*slot].local_bytes == abi::kAddressBytes);
    CHECK(t.conns[*slot].serial == 1);
}

TEST_CASE("bytes go in at the end and out at the front") {
    Table t;
    const std::uint32_t slot = t.offer();
    CHECK(t.rx_room(slot) == abi::kRxBytes);
    ConnView view;
    REQUIRE(t.connections.view(slot, view));
    t.connections.received(slot, view, 1000);
    CHECK(t.rx_room(slot) == abi::kRxBytes - 1000);
    t.conns[slot].tx_len = 500;
    REQUIRE(t.connections.view(slot, view));
    CHECK(view.rx_len == 1000);
    CHECK(view.tx_pending() == 500);
    t.connections.sent(slot, view, 200);
    CHECK(t.conns[slot].tx_off == 200);
    REQUIRE(t.connections.view(slot, view));
    t.connections.sent(slot, view, 300);
    CHECK(t.conns[slot].tx_off == 0);
    CHECK(t.conns[slot].tx_len == 0);
}

TEST_CASE("nonsense of the guest is refused, field by field") {
    Table t;
    const std::uint32_t slot = t.offer();
    abi::Conn sound = t.conns[slot];
    sound.state = abi::kConnOpen;
    ConnView view;
    const auto refused = [&](auto&& spoil) {
        t.conns[slot] = sound;
        spoil(t.conns[slot]);
        return !t.connections.view(slot, view);
    };
    CHECK_FALSE(refused([](abi::Conn&) {}));
    for (const std::uint32_t v : {4u, 5u, 0x80000000u, ~0u}) {
        CAPTURE(v);
        CHECK(refused([&](abi::Conn& c) { c.state = v; }));
        CHECK(refused([&](abi::Conn& c) { c.rx_off = v; }));
        CHECK(refused([&](abi::Conn& c) { c.tx_off = v; }));
    }
    for (const std::uint32_t v : {abi::kRxBytes + 1, 0x7fffffffu, 0x80000000u, ~0u}) {
        CAPTURE(v);
        CHECK(refused([&](abi::Conn& c) { c.rx_len = v; }));
        CHECK(refused([&](abi::Conn& c) { c.tx_len = v; }));
        CHECK(refused([&](abi::Conn& c) { c.rx_off = c.rx_len = v; }));
        CHECK(refused([&](abi::Conn& c) { c.tx_off = c.tx_len = v; }));
    }
    CHECK_FALSE(refused([](abi::Conn& c) { c.rx_off = c.rx_len = abi::kRxBytes; }));
    CHECK(view.rx_room() == 0);
    CHECK_FALSE(refused([](abi::Conn& c) { c.tx_len = abi::kTxBytes; }));
    CHECK(view.tx_pending() == abi::kTxBytes);
}

TEST_CASE("random slots: a view that is accepted keeps within the buffers") {
    Table t;
    std::mt19937 random(42);
    auto* bytes = reinterpret_cast<unsigned char*>(t.conns.data());
    for (int round = 0; round < 300; ++round) {
        for (std::size_t i = 0; i < sizeof(abi::Conn) * abi::kMaxConns; ++i)
            bytes[i] = random() % 3 == 0 ? static_cast<unsigned char>(random()) : 0;
        t.shared.conn_limit = random();
        t.shared.offered = random();
        REQUIRE(t.connections.limit() <= abi::kMaxConns);
        for (std::uint32_t slot = 0; slot < abi::kMaxConns; slot += 37) {
            ConnView view;
            if (!t.connections.view(slot, view))
                continue;
            std::vector<iovec> in, out;
            REQUIRE(t.connections.rx_ranges(slot, view, in));
            REQUIRE(t.connections.tx_ranges(slot, view, out));
            std::uint64_t room = 0, pending = 0;
            for (const iovec& r : in)
                room += r.iov_len;
            for (const iovec& r : out)
                pending += r.iov_len;
            REQUIRE(room == view.rx_room());
            REQUIRE(pending == view.tx_pending());
        }
        if (const auto slot = t.connections.offer(0, {}, {}))
            REQUIRE(*slot < abi::kMaxConns);
        t.connections.free(random() % abi::kMaxConns);
        REQUIRE(t.connections.limit() <= abi::kMaxConns);
    }
}

TEST_CASE("without buffers there are no ranges") {
    BootWorld world;
    abi::Shared shared{};
    std::vector<abi::Conn> conns(abi::kMaxConns);
    Connections connections(world.space, &shared, conns.data());
    ConnView view;
    REQUIRE(connections.view(0, view));
    std::vector<iovec> ranges;
    CHECK_FALSE(connections.rx_ranges(0, view, ranges));
    view.tx_len = 1;
    CHECK_FALSE(connections.tx_ranges(0, view, ranges));
}
