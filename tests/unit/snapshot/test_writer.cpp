// A snapshot appears complete or not at all.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "src/snapshot/output_file.hpp"
#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/matchers.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

using namespace kvmserver;
using test::Contains;
using tinykvm::ExitCode;

namespace {

SnapshotSummary write_sample(const std::filesystem::path& path, std::uint32_t frames = 400, int level = 1) {
    return write_snapshot(path, test::sample_state(frames), test::make_memory(frames), {}, level);
}

// Files of this process may not grow beyond `bytes`: the next write fails as on a full disk.
class SizeLimit {
public:
    explicit SizeLimit(rlim_t bytes) {
        old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
        ::getrlimit(RLIMIT_FSIZE, &old_);
        const rlimit limit{bytes, old_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~SizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &old_);
        std::signal(SIGXFSZ, old_handler_);
    }

private:
    rlimit old_{};
    void (*old_handler_)(int) = nullptr;
};

} // namespace

TEST_CASE("a new snapshot replaces an old one, and only its owner may read it") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    test::write_file(path, test::to_bytes("old"));
    write_sample(path);
    SnapshotReader::open(path).verify();
    CHECK(folder.entries() == 1);
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("no room: nothing is left, and what was there stays") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    const auto whole = write_sample(path).file_bytes;
    std::filesystem::remove(path);
    for (const rlim_t room : {rlim_t{0}, rlim_t{100}, rlim_t{whole / 2}, rlim_t{whole - 1}}) {
        CAPTURE(room, whole);
        {
            const SizeLimit limit(room);
            CHECK_THROWS_WITH(write_sample(path), Contains("write " + path.string() + ": File too large"));
        }
        CHECK(folder.entries() == 0);
        test::write_file(path, test::to_bytes("old"));
        {
            const SizeLimit limit(room);
            CHECK_THROWS_AS(write_sample(path), tinykvm::HostError);
        }
        CHECK(folder.entries() == 1);
        CHECK(test::read_file(path) == test::to_bytes("old"));
        std::filesystem::remove(path);
    }
    {
        const SizeLimit limit(whole);
        CHECK_NOTHROW(write_sample(path));
    }
}

TEST_CASE("an unfinished file has no trace") {
    for (const auto naming : {OutputFile::Naming::nameless, OutputFile::Naming::hidden}) {
        const test::TempFolder folder;
        {
            OutputFile file(folder / "app.snap", naming);
            file.write_at(0, test::to_bytes("half"));
            CHECK_FALSE(std::filesystem::exists(folder / "app.snap"));
            CHECK(folder.entries() == (naming == OutputFile::Naming::hidden ? 1 : 0));
        }
        CHECK(folder.entries() == 0);
        {
            OutputFile file(folder / "app.snap", naming);
            file.write_at(0, test::to_bytes("all"));
            file.publish();
        }
        CHECK(folder.entries() == 1);
        CHECK(test::read_file(folder / "app.snap") == test::to_bytes("all"));
    }
}

TEST_CASE("places that cannot be written to") {
    const test::TempFolder folder;
    const auto outcome = [&](const std::filesystem::path& path) {
        return test::outcome_of([&] { write_sample(path); });
    };
    CHECK(outcome(folder / "none" / "app.snap").code == ExitCode::not_found);
    test::write_file(folder / "file", test::to_bytes("x"));
    CHECK(outcome(folder / "file" / "app.snap").code == ExitCode::not_found);
    CHECK_THAT(outcome(folder.path()).message, Contains("is a folder"));
    CHECK_THAT(outcome("/dev/null").message, Contains("is not a regular file"));
    CHECK(std::filesystem::is_character_file("/dev/null"));
    CHECK(outcome("/proc/app.snap").code != ExitCode::ok);

    REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
    const bool root = ::geteuid() == 0;
    if (root)
        REQUIRE(::seteuid(65534) == 0);
    const auto refused = outcome(folder / "app.snap");
    if (root)
        REQUIRE(::seteuid(0) == 0);
    ::chmod(folder.path().c_str(), 0755);
    CHECK(refused.code == ExitCode::not_permitted);
    CHECK_THAT(refused.message, Contains("app.snap: Permission denied"));
    CHECK(folder.entries() == 1);
}

TEST_CASE("a name without a folder is in this one") {
    const test::TempFolder folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    write_sample("app.snap");
    SnapshotReader::open("app.snap").verify();
    std::filesystem::current_path(before);
    CHECK(folder.entries() == 1);
}

TEST_CASE("input that cannot be written") {
    const test::TempFolder folder;
    CHECK(test::outcome_of([&] { write_sample(folder / "a", 400, 23); }).code == ExitCode::usage);
    CHECK(test::outcome_of([&] { write_sample(folder / "a", 400, -1); }).code == ExitCode::usage);
    auto state = test::sample_state(4);
    state.limits.boot_seconds = -1;
    CHECK_THAT(test::outcome_of([&] { write_snapshot(folder / "a", state, test::make_memory(4), {}); }).message,
               Contains("a: metadata is inconsistent: document.machine.limits has an impossible time"));
    CHECK_THROWS_AS(write_snapshot(folder / "a", test::sample_state(5), test::make_memory(4), {}), std::logic_error);
    CHECK(folder.entries() == 0);
}
