// What a function's process gets of a snapshot whose chunks are still in a bucket.
#include "src/runner/later_pieces.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "src/daemon/piece_sender.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/runner/daemon_messages.hpp"
#include "src/snapshot/format.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/write.hpp"

using namespace kvmserver;
using namespace tinykvm;

TEST_CASE("pieces that come later") {
    const store::test::TempFolder folder;
    store::Store store(folder / "store");
    const auto hold = store::test::import(store, store::test::sample_pieces(1, 40));
    const store::StoredSnapshot snapshot(store, hold.digest());
    const std::size_t count = snapshot.piece_count();
    REQUIRE(daemon::first_pieces(count) == std::vector<std::size_t>{0, count - 2, count - 1});
    CHECK(daemon::first_pieces(2) == std::vector<std::size_t>{0, 1});
    auto [daemon, process] = protocol::make_pair();
    auto [link, far_link] = protocol::make_pair();
    daemon::ComesLater later(count, true);
    for (const std::size_t first : daemon::first_pieces(count))
        later[first] = false;
    daemon::send_pieces(daemon.get(), snapshot, later, far_link.get());
    far_link.reset();

    const UniqueFd list(::memfd_create("list", MFD_CLOEXEC));
    const std::string text = daemon::list_of(snapshot, later);
    write_all(list.get(), std::as_bytes(std::span(text)), "the list");
    std::vector<std::byte> whole(snapshot.size());
    snapshot.read(0, whole);
    auto received = receive_pieces(process.get(), "app");
    REQUIRE((received && received->files.size() == 3 && received->later));

    const auto opened = [&] { return open_received(list.get(), *std::move(received), "app"); };

    SECTION("without a way to them") {
        const auto source = open_pieces_source(list.get(), std::move(received->files));
        REQUIRE(source->size() == whole.size());
        std::vector<std::byte> header(snapshot.piece(0).length), more(header.size() + 1);
        source->read_at(0, header);
        CHECK(std::ranges::equal(header, std::span(whole).first(header.size())));
        CHECK_THROWS_AS(source->read_at(0, more), FormatError);
    }
    SECTION("more or fewer files than the list says") {
        if (GENERATE(true, false))
            received->files.pop_back();
        else
            received->files.push_back(snapshot.open_piece(1));
        CHECK_THROWS_AS(open_pieces_source(list.get(), std::move(received->files)), UserError);
    }
    SECTION("as they come") {
        const auto source = opened();
        std::vector<std::byte> all(whole.size());
        auto reads = std::async(std::launch::async, [&] { source->read_at(0, all); });
        for (std::size_t piece = 1; piece + 2 < count; ++piece) { // each is asked for in its turn
            const auto asked = protocol::receive(link.get(), protocol::Wait::yes);
            REQUIRE((asked && asked->message.kind == protocol::Kind::later && asked->message.left == piece));
            REQUIRE(protocol::send(link.get(), asked->message, snapshot.open_piece(piece).get()));
        }
        reads.get();
        CHECK(all == whole);
    }
    SECTION("not all come") {
        const auto source = opened();
        auto reads = std::async(std::launch::async, [&] {
            std::vector<std::byte> all(whole.size());
            source->read_at(0, all);
        });
        REQUIRE(protocol::receive(link.get(), protocol::Wait::yes));
        link.reset();
        CHECK_THROWS_AS(reads.get(), UserError);
    }
}
