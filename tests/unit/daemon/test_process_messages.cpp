// What the daemon hands to the processes that it starts.
#include "src/daemon/process_messages.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "src/protocol/worker_messages.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using tinykvm::UniqueFd;

TEST_CASE("the pieces of a snapshot are handed over with few files open") {
    const store::test::TempFolder folder;
    store::Store store(folder / "store");
    const auto hold = store::test::import(store, store::test::sample_pieces(1, 100));
    const store::StoredSnapshot snapshot(store, hold.digest());
    REQUIRE(snapshot.pieces().size() >= 100);
    auto [daemon, process] = protocol::make_pair();

    rlimit usual{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC)); // the lowest number that is free
    constexpr rlim_t kFew = 20;
    const rlimit few{static_cast<rlim_t>(next.get()) + kFew, usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    std::string failure;
    try {
        daemon::send_pieces(daemon.get(), snapshot);
    } catch (const std::exception& error) {
        failure = error.what();
    }
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &usual) == 0);
    REQUIRE(failure.empty());

    std::vector<std::uint64_t> lengths;
    std::uint32_t left = 1;
    while (left > 0) {
        const auto received = protocol::receive_files(process.get());
        REQUIRE(received);
        left = received->message.left;
        for (const UniqueFd& piece : received->files)
            lengths.push_back(static_cast<std::uint64_t>(::lseek(piece.get(), 0, SEEK_END)));
    }
    CHECK(std::ranges::equal(lengths, snapshot.pieces(), {}, {}, &store::Piece::length));
}
