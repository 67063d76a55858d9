// What the daemon makes of examiners, and how many it lets work at once.
#include "src/daemon/examinations.hpp"
#include "src/store/snapshots/importer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <list>
#include <semaphore>
#include <thread>

#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using namespace kvmserver::daemon;
using tinykvm::ExitCode;

namespace {

struct Outcome {
    ExitCode code = ExitCode::ok;
    std::string why;
};

// Of a broken examiner, which has a minute unless it is to be seen that it has no more.
Outcome outcome_of(const std::string& kind, std::chrono::seconds patience = std::chrono::minutes(1)) {
    const store::test::TempFolder folder;
    const auto script = folder / "examiner";
    std::ofstream(script) << "#!/bin/sh\nexec '" << BROKEN_EXAMINER << "' '" << kind << "'\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const tinykvm::UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    try {
        Examiner{script.string(), jail::Mode::off, patience}.of_file(file.get(), 140);
    } catch (const tinykvm::UserError& error) {
        return {error.code(), error.what()};
    }
    return {};
}

SnapshotFacts some_facts() {
    SnapshotFacts facts;
    facts.frames = 10;
    facts.pieces = {140};
    facts.cwd = "/srv";
    return facts;
}

} // namespace

TEST_CASE("an examiner that does not answer as it should") {
    const auto said = [](const char* kind, const std::string& why) {
        const Outcome outcome = outcome_of(kind);
        INFO(kind);
        CHECK(outcome.code == ExitCode::bad_snapshot);
        CHECK(outcome.why == "it could not be examined: " + why);
    };
    said("gone at once", "its examiner exited with status 3");
    said("exits", "its examiner exited with status 3");
    said("crashes", "its examiner was killed by signal 6");
    said("out of time", "it takes too much time");
    said("nonsense", "its examiner gave no valid answer");
    said("no facts", "its examiner gave invalid facts");
    said("too long", "its examiner gave no valid answer");
    said("empty", "its examiner gave no valid answer");
    said("another message", "its examiner gave no valid answer");
    said("no file", "its examiner gave no valid answer");
    CHECK(outcome_of("silent", std::chrono::seconds(1)).why == "it could not be examined within 1 s");
}

TEST_CASE("what an examiner says of a snapshot is one line") {
    const Outcome bad = outcome_of("bad snapshot"), failed = outcome_of("fails");
    CHECK(bad.code == ExitCode::bad_snapshot);
    CHECK(bad.why == "it is\\x0a\\x1b[31mwrong");
    CHECK(failed.code == ExitCode::failure);
    CHECK(failed.why == "the snapshot could not be examined: no idea");
}

TEST_CASE("few are examined at once, some wait in their order, more are refused") {
    std::counting_semaphore<> may_end(0);
    std::mutex mutex;
    std::vector<std::uint64_t> begun; // in their order
    std::condition_variable changed;
    Examinations examinations({[&](int, std::uint64_t bytes) {
                                   {
                                       const std::lock_guard lock(mutex);
                                       begun.push_back(bytes);
                                       changed.notify_all();
                                   }
                                   may_end.acquire();
                                   return some_facts();
                               },
                               {},
                               {}},
                              {.at_once = 2, .waiting = 3});
    const auto wait_for = [&](std::size_t count) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return begun.size() >= count; });
    };
    std::list<std::jthread> askers;
    const auto ask = [&](std::uint64_t bytes) { askers.emplace_back([&, bytes] { examinations.of_file(-1, bytes); }); };
    ask(1);
    wait_for(1);
    ask(2);
    wait_for(2);
    for (std::uint64_t bytes = 3; bytes <= 5; ++bytes) {
        ask(bytes);
        while (examinations.waiting() < bytes - 2) // it is on its way into the line
            std::this_thread::yield();
    }
    CHECK_THROWS_AS(examinations.of_file(-1, 6), ExaminersBusy);
    CHECK(begun == std::vector<std::uint64_t>{1, 2});
    for (std::size_t count = 3; count <= 5; ++count) {
        may_end.release();
        wait_for(count);
    }
    CHECK(begun == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
    may_end.release(2);
    askers.clear();
    may_end.release();
    CHECK(examinations.of_file(-1, 7).frames == 10); // there is room again
}

TEST_CASE("a turn ends with an examination that fails") {
    Examinations examinations(
        {[](int, std::uint64_t) -> SnapshotFacts { throw tinykvm::UserError(ExitCode::bad_snapshot, "altered"); },
         {},
         {}},
        {.at_once = 1, .waiting = 0});
    for (int i = 0; i < 3; ++i)
        CHECK_THROWS_WITH(examinations.of_file(-1, 1), "altered");
}

TEST_CASE("pieces wait for their turn as files do") {
    const store::test::TempFolder folder;
    store::Store store(folder / "store");
    store::Importer importer(store);
    const auto piece = store::test::sample_pieces(1).front();
    importer.put(piece);
    std::uint64_t seen = 0;
    Examinations examinations({{},
                               [&](const store::PieceFiles& pieces, std::uint64_t bytes) {
                                   CHECK(pieces.piece_count() == 1);
                                   CHECK(pieces.piece(0).digest == sha256(piece));
                                   seen = bytes;
                                   CHECK_THROWS_AS(examinations.of_pieces(pieces, 1), ExaminersBusy); // no turn is left
                                   return some_facts();
                               },
                               {}},
                              {.at_once = 1, .waiting = 0});
    CHECK(examinations.of_pieces(importer, importer.size()).frames == 10);
    CHECK(seen == piece.size());
}

TEST_CASE("a snapshot of the store is examined once") {
    const store::test::TempFolder folder;
    store::Store store(folder / "store");
    const auto hold = store::test::import(store, store::test::sample_pieces(1));
    const auto other = store::test::import(store, store::test::sample_pieces(2));
    const store::StoredSnapshot snapshot(store, hold.digest()), second(store, other.digest());
    int examined = 0;
    bool sound = true;
    Examinations examinations({{}, {}, [&](const store::StoredSnapshot&) {
                                   ++examined;
                                   if (!sound)
                                       throw tinykvm::UserError(ExitCode::bad_snapshot, "altered");
                                   return some_facts();
                               }});
    CHECK_FALSE(examinations.knows(hold.digest()));
    CHECK_FALSE(examinations.known(hold.digest()));
    CHECK(examinations.of_stored(snapshot)->cwd == "/srv");
    CHECK(examinations.known(hold.digest())->cwd == "/srv");
    CHECK(examinations.of_stored(snapshot)->cwd == "/srv");
    CHECK(examinations.knows(hold.digest()));
    CHECK(examined == 1);
    sound = false; // nor is one that cannot be, for a minute
    CHECK_FALSE(examinations.of_stored(second));
    CHECK_FALSE(examinations.of_stored(second));
    CHECK(examined == 2);
    examinations.learn(other.digest(), some_facts()); // brought again
    CHECK(examinations.of_stored(second)->cwd == "/srv");
    CHECK(examinations.of_stored(second)->pieces.empty());
    CHECK(examined == 2);
}

TEST_CASE("of the snapshots of the store four are examined at once") {
    const store::test::TempFolder folder;
    store::Store store(folder / "store");
    std::atomic<int> examined = 0, now = 0, most = 0;
    Examinations examinations({{}, {}, [&](const store::StoredSnapshot&) {
                                   most = std::max<int>(most, ++now);
                                   ++examined;
                                   std::this_thread::yield();
                                   --now;
                                   return some_facts();
                               }});
    std::vector<store::SnapshotHold> holds;
    for (unsigned i = 0; i < 12; ++i)
        holds.push_back(store::test::import(store, store::test::sample_pieces(i)));
    {
        std::list<std::jthread> askers;
        for (int i = 0; i < 60; ++i)
            askers.emplace_back([&, i] {
                const store::StoredSnapshot snapshot(store, holds[static_cast<std::size_t>(i) % 12].digest());
                examinations.of_stored(snapshot);
            });
    }
    CHECK(most <= 4);
    CHECK(examined >= 12);
    CHECK(examined <= 12 * 4);
    examined = 0;
    examinations.of_stored(store::StoredSnapshot(store, holds[3].digest()));
    CHECK(examined == 0);
}

TEST_CASE("what is known of snapshots takes 16 MiB at most") {
    Examinations examinations{Examinations::Operations{}};
    SnapshotFacts large = some_facts();
    large.cwd.assign(1 << 20, '/');
    const auto digest = [](int i) { return sha256(std::to_string(i)); };
    for (int i = 0; i < 20; ++i)
        examinations.learn(digest(i), large);
    CHECK_FALSE(examinations.knows(digest(0))); // the oldest go
    CHECK(examinations.knows(digest(19)));
    int known = 0;
    for (int i = 0; i < 20; ++i)
        known += examinations.knows(digest(i));
    CHECK(known == 7);
}
