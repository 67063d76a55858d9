// Several processes and threads at once; many functions.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <thread>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;

namespace {

// A process of its own; no Store is open in this one meanwhile.
pid_t in_child(const std::function<void()>& action) {
    const pid_t child = ::fork();
    if (child != 0)
        return child;
    int status = 0;
    try {
        action();
    } catch (const std::exception& e) {
        ::dprintf(2, "child: %s\n", e.what());
        status = 1;
    }
    ::_exit(status);
}

void join(pid_t child) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

} // namespace

TEST_CASE("a lock that is given back is free at once, also while a process that is being started has its file open") {
    const TempFolder folder;
    fs::create_directories(folder / "store");
    Folder store(folder / "store", real_files());
    std::array<int, 2> end{};
    REQUIRE(::pipe(end.data()) == 0);
    auto held = std::optional(FileLock::exclusive(store, "lock"));
    const pid_t child = in_child([&] {
        char none = 0;
        ::close(end[1]);
        if (::read(end[0], &none, 1) != 0)
            throw std::runtime_error("nobody writes here");
    });
    held.reset();
    CHECK(FileLock::try_exclusive(store, "lock"));
    CHECK(FileLock::nobody_holds(store, "lock"));
    ::close(end[0]);
    ::close(end[1]);
    join(child);
}

TEST_CASE("processes that make, deploy to, read and clean one store at once") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    constexpr unsigned kRounds = 40;
    std::vector<pid_t> children;
    for (unsigned who = 0; who < 2; ++who) {
        children.push_back(in_child([&] {
            Store store(path);
            for (unsigned round = 0; round < kRounds; ++round) {
                deploy(store, who ? "one" : "two", round % 7); // the same chunks again and again
                deploy(store, "both", 100 + round);
            }
        }));
        children.push_back(in_child([&] {
            Store store(path);
            GcOptions options;
            options.keep_versions = 1;
            for (unsigned round = 0; round < 2 * kRounds; ++round)
                gc(store, options);
        }));
    }
    children.push_back(in_child([&] {
        Store store(path);
        Uploads uploads(store);
        for (unsigned round = 0; round < 4 * kRounds; ++round) {
            const std::string id = uploads.create(3, sha256("abc")).id;
            uploads.append(id, 0, bytes_of("abc"));
            uploads.complete(id);
            uploads.drop(id);
        }
    }));
    children.push_back(in_child([&] { // what it sees is always whole
        Store store(path);
        for (unsigned round = 0; round < 2 * kRounds; ++round)
            for (const FunctionSummary& function : Functions(store).list()) {
                const std::uint64_t version = function.live.at(0).version;
                try {
                    const Digest digest = Functions(store).version(function.name, version).snapshot;
                    if (sha256(exported(store, digest)) != digest)
                        throw std::runtime_error("a snapshot reads differently");
                } catch (const NotFound&) { // replaced and collected since
                }
            }
    }));
    children.push_back(in_child([&] {
        for (unsigned round = 0; round < 5; ++round)
            if (const auto report = verify(path); !report.clean())
                throw std::runtime_error(lines_of(report));
    }));
    for (const pid_t child : children)
        join(child);
    const VerifyReport report = verify(path);
    INFO(lines_of(report));
    CHECK(report.findings.empty());
    Store store(path);
    CHECK(Functions(store).describe("both").live.at(0).version == 2 * kRounds);
    GcOptions options;
    options.keep_versions = 1;
    gc(store, options);
    CHECK(files_below(path / "chunks").size() == 3 + 3 + 3); // shared, of one and two (both seed 4), of both
}

TEST_CASE("an import that was killed is cleaned up, one that lives is not") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    { Store store(path); }
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = in_child([&] {
        Store store(path);
        Importer importer(store);
        importer.put(bytes_of("half"));
        if (::write(ready[1], "x", 1) == 1)
            ::pause();
    });
    char byte;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    Store store(path);
    CHECK(gc(store).leftovers == 0);
    CHECK(files_below(path / "tmp").size() == 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(gc(store).leftovers == 2); // its folder and its mark
    CHECK(files_below(path / "tmp").empty());
    CHECK(files_below(path / "locks").empty());
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_CASE("threads share a Store") {
    const TempFolder folder;
    Store store(folder / "store");
    std::vector<std::thread> threads;
    for (unsigned who = 0; who < 4; ++who)
        threads.emplace_back([&store, who] {
            for (unsigned round = 0; round < 10; ++round) {
                deploy(store, "f" + std::to_string(who), round);
                Functions(store).list();
                gc(store);
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(Functions(store).list().size() == 4);
    CHECK(lines_of(verify(folder / "store")).empty());
}

TEST_CASE("another process's change shows in data_version") {
    const TempFolder folder;
    Store one(folder / "store"), two(folder / "store");
    const auto before = one.data_version();
    CHECK(one.data_version() == before);
    deploy(two, "hello", 1);
    CHECK(one.data_version() != before);
}

TEST_CASE("many functions, and many versions of one") { // what that costs: bench/many.py
    const unsigned many = static_cast<unsigned>(kvmserver::test::amount(1000)),
                   versions = static_cast<unsigned>(kvmserver::test::amount(400));
    const TempFolder folder;
    Store store(folder / "store");
    for (unsigned i = 0; i < many; ++i) {
        const std::string name = "f" + std::to_string(i);
        deploy(store, name, i % 5, {name + ".example.com"});
    }
    CHECK(files_below(folder / "store/chunks").size() == 3 + 5 * 3); // the functions share them
    CHECK(Functions(store).list().size() == many);
    for (unsigned i = 0; i < versions; ++i)
        REQUIRE(deploy(store, "f0", i % 5).version == i + 2);
    CHECK(files_below(folder / "store/chunks").size() == 3 + 5 * 3);
    CHECK(Functions(store).list().size() == many);
}
