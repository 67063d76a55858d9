#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "src/cluster/away_limit.hpp"
#include "src/common/clock.hpp"
#include "src/store/files/folder.hpp"
#include "src/store/files/record.hpp"
#include "src/store/files/record_json.hpp"

using namespace kvmserver;
using namespace std::chrono_literals;
using kvmserver::cluster::AwayLimit;

namespace {

constexpr std::int64_t kHourMs = 3'600'000;

struct Fixture {
    const store::test::TempFolder temp;
    const std::filesystem::path path = temp / "store";
    std::vector<std::string> notes;

    Fixture() { store::Folder::make(path, *store::real_files()); }
    AwayLimit make(std::chrono::milliseconds limit) {
        return {path, limit, [this](const std::string& line) { notes.push_back(line); }};
    }
    void record(std::int64_t time) const {
        folder().put(store::kClusterContact, store::seal_record("cluster-contact", store::Json{{"time", time}}.dump()));
    }
    std::int64_t recorded() const {
        const auto text = folder().read(store::kClusterContact, store::kMaxRecordBytes);
        return store::time_field(store::parse_record(store::open_record("cluster-contact", *text)), "time");
    }
    store::Folder folder() const { return {path, store::real_files()}; }
};

} // namespace

TEST_CASE_METHOD(Fixture, "the time without the index begins with the last contact, also before a restart") {
    record(now_ms() - 2 * kHourMs);
    AwayLimit limit = make(1h);
    limit.tick(false);
    CHECK(limit.over());
    REQUIRE(notes.size() == 1);
    CHECK(notes.front().find("has not been reached since 20") != std::string::npos);
    limit.tick(false);
    CHECK(notes.size() == 1);
    limit.tick(true);
    CHECK(!limit.over());
    CHECK(notes.size() == 2);
    CHECK(now_ms() - recorded() < kHourMs / 2);
    AwayLimit later = make(1h);
    later.tick(false);
    CHECK(!later.over());
    AwayLimit longer = make(0ms); // for ever
    record(now_ms() - 2 * kHourMs);
    longer.tick(false);
    CHECK(!longer.over());
}

TEST_CASE_METHOD(Fixture, "while the index is away its record stays") {
    const std::int64_t before = now_ms() - kHourMs / 2;
    record(before);
    make(1h).tick(false);
    CHECK(recorded() == before);
}

TEST_CASE_METHOD(Fixture, "the last contact is recorded when it ends") {
    AwayLimit limit = make(1h);
    limit.tick(true);
    const std::int64_t first = recorded();
    std::this_thread::sleep_for(20ms);
    limit.tick(true);
    CHECK(recorded() == first); // not each time
    limit.tick(false);
    CHECK(recorded() - first >= 19);
}

TEST_CASE_METHOD(Fixture, "without a record, or with a senseless one, the time begins now") {
    make(1h).tick(false);
    CHECK(now_ms() - recorded() < kHourMs / 2); // the next start goes on from there
    record(now_ms() + kHourMs);                 // the host's clock was set back
    AwayLimit future = make(1h);
    future.tick(false);
    CHECK(!future.over());
    CHECK(notes.empty());
    folder().put(store::kClusterContact, "x");
    AwayLimit damaged = make(1h);
    damaged.tick(false);
    CHECK(!damaged.over());
    CHECK(notes.size() == 1);
    CHECK(now_ms() - recorded() < kHourMs / 2);
}
