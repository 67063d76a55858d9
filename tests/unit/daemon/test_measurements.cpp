#include <sqlite3.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/daemon/measurements.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using namespace kvmserver::daemon;

namespace {

constexpr std::int64_t kStart = 1'800'000'000; // a full hour

const Span& hour = kSpans[0];
const Span& day = kSpans[1];
const Span& week = kSpans[2];
const FunctionIdentity hello_function{"hello", 1}, other_function{"other", 1};

// Daemons one after the other on the same folder, with a clock that the test sets.
struct MeasuredWorld {
    store::test::TempFolder temp;
    std::shared_ptr<store::Folder> folder = std::make_shared<store::Folder>(temp.path(), store::real_files());
    std::int64_t now = kStart;
    std::uint64_t max_points = 100'000;
    std::vector<std::string> notes;
    std::set<FunctionIdentity> functions{hello_function, other_function};
    std::unique_ptr<Metrics> metrics;
    std::unique_ptr<Measurements> measurements;

    MeasuredWorld() { start(); }

    // Without write(): as after a crash.
    void start() {
        measurements.reset();
        metrics = std::make_unique<Metrics>();
        measurements = std::make_unique<Measurements>(
            folder, [this] { return metrics->snapshot(); }, [this](const std::string& line) { notes.push_back(line); },
            MeasurementOptions{[this] { return now; }, max_points});
        keep();
    }
    void keep() {
        measurements->keep([this] { return std::vector(functions.begin(), functions.end()); });
    }
    void request(const std::string& function = "hello", unsigned status = 200, std::uint64_t us = 900,
                 bool cold = false, std::uint64_t version = 1) {
        metrics->count(function, version, [&](VersionMetrics& m) {
            ++m.requests[status];
            m.duration.add(us);
            m.cold_starts += cold;
        });
    }
    void pass(std::int64_t seconds) { // as the daemon's loop does, but more rarely
        const std::int64_t end = now + seconds;
        while (now < end) {
            now = std::min(end, step_start(now, 60) + 60);
            measurements->tick();
        }
    }
    Points points(const Span& span, const FunctionIdentity& function = hello_function) {
        return measurements->of(function, span).points;
    }
    std::uint64_t count() { return MeasurementFile(*folder).count(); }
    std::filesystem::path file() const { return temp / kMeasurementFile; }
};

std::uint64_t requests(const Points& points) {
    std::uint64_t sum = 0;
    for (const auto& [time, counts] : points)
        sum += counts.requests;
    return sum;
}

} // namespace

TEST_CASE("a request is in a minute, in ten minutes and in an hour, before it is written and afterwards") {
    MeasuredWorld world;
    world.now = kStart + 3600 + 11 * 60 + 5;
    world.measurements->tick();
    world.request("hello", 200, 900, true);
    world.request("hello", 500, 90'000, false, 2); // of another version: the same function
    world.request("hello", 0, 90'000);
    world.request("hello", 404, 300);
    world.request("", 404);
    world.request("stranger");
    for (int i = 0; i < 3; ++i) { // unfinished, finished, and read by the next daemon
        CAPTURE(i);
        for (const Span& span : kSpans) {
            const Series series = world.measurements->of(hello_function, span);
            CHECK(series.to == step_start(world.now, span.step));
            CHECK(series.from == series.to - span.seconds);
            REQUIRE(series.points.size() == 1);
            const auto& [time, counts] = *series.points.begin();
            CHECK(time == step_start(kStart + 3600 + 11 * 60, span.step));
            CHECK(counts.requests == 4);
            CHECK(counts.errors == 2);
            CHECK(counts.cold_starts == 1);
            CHECK(counts.latency_us(50) == 1000);
            CHECK(counts.latency_us(99) == 100'000);
        }
        const SeriesOfAll all = world.measurements->of_all(day);
        CHECK(all.functions.size() == 2);
        CHECK(requests(all.functions.at("hello")) == 4);
        CHECK(all.functions.at("other").empty());
        if (i == 0)
            world.pass(60);
        else
            world.start();
    }
    CHECK(world.notes.empty());
}

TEST_CASE("the minutes of ten minutes add up, and each minute is its own") {
    MeasuredWorld world;
    for (int minute = 0; minute < 20; ++minute) {
        for (int i = 0; i <= minute; ++i)
            world.request();
        world.pass(60);
    }
    const Points minutes = world.points(hour), tens = world.points(day), hours = world.points(week);
    REQUIRE(minutes.size() == 20);
    CHECK(minutes.at(kStart).requests == 1);
    CHECK(minutes.at(kStart + 19 * 60).requests == 20);
    REQUIRE(tens.size() == 2);
    CHECK(tens.at(kStart).requests == 55);
    CHECK(tens.at(kStart + 600).requests == 155);
    REQUIRE(hours.size() == 1);
    CHECK(hours.at(kStart).requests == 210);
}

TEST_CASE("minutes without requests cost nothing, and old points go") {
    MeasuredWorld world;
    world.request();
    world.pass(60);
    CHECK(world.count() == 3);
    world.pass(50 * 60);
    CHECK(requests(world.points(hour)) == 1);
    world.pass(30 * 60);
    CHECK(world.count() == 2);
    CHECK(requests(world.points(hour)) == 0);
    CHECK(requests(world.points(day)) == 1);
    world.pass(24 * 3600);
    CHECK(world.count() == 1);
    CHECK(requests(world.points(week)) == 1);
    world.pass(7 * 24 * 3600);
    CHECK(world.count() == 0);
}

TEST_CASE("a function with requests in every minute of a week takes what the documents say") {
    MeasuredWorld world;
    for (int minute = 0; minute < 8 * 24 * 60; ++minute) {
        world.request("hello", 200, 900 + static_cast<std::uint64_t>(minute) % 3 * 4000);
        world.pass(60);
    }
    CHECK(world.points(hour).size() == 60); // the unfinished minute has none
    CHECK(world.points(day).size() == 144);
    CHECK(world.points(week).size() == 168);
    CHECK(world.count() <= 400);
    world.measurements.reset();
    CHECK(std::filesystem::file_size(world.file()) < 64 * 1024);
}

TEST_CASE("the number of points is bounded: the longest unused function goes first") {
    MeasuredWorld world;
    world.functions.clear();
    for (int i = 0; i < 10; ++i)
        world.functions.insert({"f" + std::to_string(i), 1});
    world.max_points = 20;
    world.start();
    for (int i = 0; i < 10; ++i) {
        world.request("f" + std::to_string(i));
        world.pass(60);
        if (i == 7) {
            world.request("f2"); // used again
            world.pass(60);
        }
    }
    CHECK(world.count() <= 20);
    CHECK(requests(world.points(day, {"f9", 1})) == 1);
    CHECK(requests(world.points(day, {"f2", 1})) == 2);
    CHECK(requests(world.points(day, {"f3", 1})) == 0);
}

TEST_CASE("what the daemon writes at its end is there; a crash costs the unfinished minute") {
    MeasuredWorld world;
    world.request();
    world.now += 30;
    world.measurements->write();
    world.request();
    CHECK(requests(world.points(hour)) == 2);
    world.start(); // within the same minute
    CHECK(requests(world.points(hour)) == 1);
    world.request();
    CHECK(requests(world.points(hour)) == 2);
    world.pass(60);
    CHECK(world.points(hour).size() == 1);
}

TEST_CASE("two daemons add to the same points while one hands over") {
    MeasuredWorld world;
    Measurements successor(
        world.folder, [&] { return world.metrics->snapshot(); }, [](const std::string&) {},
        {[&] { return world.now; }});
    successor.keep([&] { return std::vector(world.functions.begin(), world.functions.end()); });
    world.request();
    successor.write();
    world.measurements->write();
    CHECK(requests(world.points(hour)) == 2); // the same counters, read by both
}

TEST_CASE("a deleted function's measurements go, and one of the same name begins anew") {
    MeasuredWorld world;
    world.request();
    world.request("other");
    world.pass(60);
    world.request(); // not written yet
    world.functions = {{"hello", 2}, other_function};
    world.keep();
    CHECK(world.count() == 3);
    CHECK(world.points(hour).empty());
    CHECK(world.points(hour, {"hello", 2}).empty());
    world.request();
    world.pass(60);
    CHECK(requests(world.points(hour, {"hello", 2})) == 1);
    CHECK(requests(world.points(hour, other_function)) == 1);
    world.functions = {other_function}; // while no daemon runs
    world.start();
    CHECK(world.count() == 3);
}

TEST_CASE("a clock that jumps loses nothing but what is out of reach") {
    MeasuredWorld world;
    world.request();
    world.pass(5 * 60);
    world.now -= 2 * 3600; // back, as after a wrong start
    world.measurements->tick();
    world.request();
    world.pass(60);
    CHECK(requests(world.points(hour)) == 1); // the future is not shown
    CHECK(world.points(hour).contains(kStart + 5 * 60 - 2 * 3600));
    world.now = kStart + 6 * 60; // set right
    world.measurements->tick();
    CHECK(requests(world.points(hour)) == 1);
    CHECK(requests(world.points(day)) == 2);

    world.now += 365 * 24 * 3600; // forward
    world.request();
    world.pass(9 * 60);
    CHECK(requests(world.points(hour)) == 0); // it belongs to the minute before the jump
    world.request();
    world.pass(30);
    world.now = kStart + 10 * 60; // right again: nothing was removed meanwhile
    world.measurements->tick();
    CHECK(requests(world.points(day)) >= 3);
    world.pass(20 * 60); // regular for long enough: what is in the future goes
    for (const Span& span : kSpans)
        for (const auto& [function, points] : MeasurementFile(*world.folder).points(span, 0, INT64_MAX))
            for (const auto& [time, counts] : points)
                CHECK(time <= world.now);
    CHECK(requests(world.points(day)) >= 3);
}

TEST_CASE("what was counted just before the clock is set back is not in the future") {
    MeasuredWorld world;
    world.request();
    world.now -= 120;
    CHECK(requests(world.points(hour)) == 1);
    world.measurements->tick();
    CHECK(requests(world.points(hour)) == 1);
    CHECK(world.points(hour).contains(kStart - 120));
}

TEST_CASE("percentiles are the bounds of their buckets") {
    Counts counts;
    CHECK(!counts.latency_us(50));
    counts.latency[0] = 50; // <= 100 us
    counts.latency[3] = 45; // <= 1 ms
    counts.latency[6] = 4;  // <= 10 ms
    counts.latency.back() = 1;
    CHECK(counts.latency_us(50) == 100);
    CHECK(counts.latency_us(51) == 1000);
    CHECK(counts.latency_us(95) == 1000);
    CHECK(counts.latency_us(99) == 10'000);
    CHECK(counts.latency_us(100) == 300'000'000);
}

TEST_CASE("a damaged file is set aside with one line, and measuring goes on") {
    MeasuredWorld world;
    world.request();
    world.measurements->write();
    world.measurements.reset();
    SECTION("no database") {
        store::test::write_text(world.file(),
                                "this is no database, but it is long enough to look like one" + std::string(9000, 'x'));
    }
    SECTION("of another layout") {
        sqlite3* db = nullptr;
        REQUIRE(sqlite3_open(world.file().c_str(), &db) == SQLITE_OK);
        CHECK(sqlite3_exec(db, "PRAGMA user_version = 99", nullptr, nullptr, nullptr) == SQLITE_OK);
        sqlite3_close(db);
    }
    SECTION("with values of the wrong sign") {
        sqlite3* db = nullptr;
        REQUIRE(sqlite3_open(world.file().c_str(), &db) == SQLITE_OK);
        CHECK(sqlite3_exec(db, "UPDATE point SET requests = -1", nullptr, nullptr, nullptr) == SQLITE_OK);
        sqlite3_close(db);
    }
    SECTION("with tables of another kind") {
        sqlite3* db = nullptr;
        REQUIRE(sqlite3_open(world.file().c_str(), &db) == SQLITE_OK);
        CHECK(sqlite3_exec(db, "DROP TABLE point", nullptr, nullptr, nullptr) == SQLITE_OK);
        sqlite3_close(db);
    }
    SECTION("garbage behind the first page") {
        std::string text = store::test::read_text(world.file());
        for (std::size_t i = 4096; i < text.size(); ++i)
            text[i] = static_cast<char>(i * 7);
        store::test::write_text(world.file(), text);
    }
    world.start();
    CHECK(world.points(hour).empty());
    REQUIRE(world.notes.size() == 1);
    CHECK(world.notes[0].find("measurements.db: damaged, set aside as measurements.db.damaged") == 0);
    CHECK(std::filesystem::exists(world.temp / "measurements.db.damaged"));
    world.request();
    world.pass(60);
    CHECK(requests(world.points(hour)) == 1);
    CHECK(world.count() == 3);
    CHECK(world.notes.size() == 1);
}

TEST_CASE("a file that cannot be used is told once, and what is counted is written later") {
    MeasuredWorld world;
    world.measurements.reset();
    std::filesystem::remove(world.file());
    std::filesystem::create_directory(world.file());
    world.start();
    world.request();
    world.pass(3 * 60);
    CHECK(world.notes.size() == 1);
    CHECK(requests(world.points(hour)) == 1);
    std::filesystem::remove(world.file());
    world.pass(60);
    CHECK(world.count() == 3);
    CHECK(requests(world.points(hour)) == 1);
    CHECK(world.notes.size() == 1);
}

TEST_CASE("the file is private") {
    const MeasuredWorld world;
    CHECK((std::filesystem::status(world.file()).permissions() & std::filesystem::perms(0077)) ==
          std::filesystem::perms::none);
}

TEST_CASE("a change tells which functions came and went, in its order") {
    MeasuredWorld world;
    world.request();
    world.request("other");
    world.pass(60);
    world.request(); // not written yet
    const FunctionIdentity anew{"hello", 2}, brief{"brief", 1};
    world.measurements->change([&] {
        return std::vector<std::pair<FunctionIdentity, bool>>{
            {hello_function, false}, {anew, true}, {brief, true}, {brief, false}};
    });
    CHECK(world.points(hour).empty());
    CHECK(world.points(hour, anew).empty());
    world.request();
    world.request("brief");
    world.pass(60);
    CHECK(requests(world.points(hour, anew)) == 1);
    CHECK(requests(world.points(hour, other_function)) == 1);
    CHECK(world.points(hour, brief).empty());
}
