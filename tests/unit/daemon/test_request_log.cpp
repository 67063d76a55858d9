#include <string>
#include <thread>
#include <vector>

#include "src/daemon/request_log.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::daemon;
using RequestOutcome = kvmserver::request::Outcome;

namespace {

void add(RequestRing& ring, const std::string& path, unsigned status = 200, RequestOutcome outcome = RequestOutcome::ok,
         std::uint64_t version = 1) {
    ring.add({.ms = 1000,
              .version = version,
              .status = status,
              .outcome = outcome,
              .total_us = 1500,
              .method = "GET",
              .path = path,
              .request_id = "0123456789abcdef"});
}

std::string paths(const std::vector<LoggedRequest>& requests) {
    std::string out;
    for (const LoggedRequest& one : requests)
        out += one.path + " ";
    return out;
}

} // namespace

TEST_CASE("a flood of requests does not displace those that failed, and is counted") {
    RequestLog log;
    const auto ring = log.ring("hello", 7);
    RequestReader all(log, {.function = "hello", .created = 7});
    RequestReader errors(log, {.function = "hello", .created = 7, .errors = true});
    add(*ring, "/first");
    std::uint64_t missed = 0;
    CHECK(paths(all.next(missed)) == "/first ");
    CHECK(paths(errors.next(missed)).empty());
    add(*ring, "/broken", 502, RequestOutcome::program_failed);
    for (std::size_t i = 0; i < RequestRing::kKept + 5; ++i)
        add(*ring, "/" + std::to_string(i));
    CHECK(missed == 0);
    const auto found = all.next(missed);
    CHECK(missed == 5);
    CHECK(found.size() == RequestRing::kKept + 1);
    CHECK(found.front().path == "/broken");
    CHECK(found[1].path == "/5");
    CHECK(found.back().path == "/" + std::to_string(RequestRing::kKept + 4));
    for (std::size_t i = 1; i < found.size(); ++i)
        CHECK(found[i - 1].id < found[i].id);
    missed = 0;
    CHECK(paths(errors.next(missed)) == "/broken ");
    CHECK(all.next(missed).empty());
    CHECK(missed == 0);
}

TEST_CASE("which requests failed") {
    CHECK_FALSE(failed(200, RequestOutcome::ok));
    CHECK_FALSE(failed(404, RequestOutcome::ok));
    CHECK(failed(500, RequestOutcome::ok)); // the program says so
    CHECK(failed(0, RequestOutcome::program_failed));
    CHECK(failed(200, RequestOutcome::worker_died)); // in the middle of its reply
    CHECK(failed(503, RequestOutcome::queue_full));
    for (const RequestOutcome by_client : {RequestOutcome::refused, RequestOutcome::client_timeout,
                                           RequestOutcome::client_slow, RequestOutcome::client_gone})
        CHECK_FALSE(failed(0, by_client));
}

TEST_CASE("requests of one function, version and text only") {
    RequestLog log;
    const auto hello = log.ring("hello", 7), other = log.ring("other", 7);
    add(*hello, "/a");
    add(*hello, "/b", 200, RequestOutcome::ok, 2);
    add(*other, "/c");
    std::uint64_t missed = 0;
    const auto read = [&](RequestQuery query) { return paths(RequestReader(log, std::move(query)).next(missed)); };
    const auto all = RequestReader(log, {}).next(missed);
    CHECK(all.size() == 3);
    for (const LoggedRequest& one : all) // in the same microsecond their order is not known
        CHECK(one.function == (one.path == "/c" ? "other" : "hello"));
    CHECK(read({.function = "hello", .created = 7}) == "/a /b ");
    CHECK(read({.function = "hello", .created = 8}).empty()); // deleted, and made again by somebody else
    CHECK(read({.function = "hello", .created = 7, .version = 2}) == "/b ");
    CHECK(read({.function = "hello", .created = 7, .contains = "GET /b 200"}) == "/b ");
    CHECK(read({.function = "hello", .created = 7, .since_ms = 1001}).empty());
    CHECK(read({.function = "hello", .created = 7, .request_id = "0"}).empty());
}

TEST_CASE("the requests go with the last version of the function") {
    RequestLog log;
    auto ring = log.ring("hello", 7);
    CHECK(log.ring("hello", 7) == ring);
    add(*ring, "/a");
    RequestReader reader(log, {});
    std::uint64_t missed = 0;
    CHECK(paths(reader.next(missed)) == "/a ");
    ring.reset();
    ring = log.ring("hello", 7);
    CHECK(RequestReader(log, {}).next(missed).empty());
    add(*ring, "/b");
    CHECK(paths(reader.next(missed)) == "/b ");
    CHECK(missed == 0);
}

TEST_CASE("long texts are cut") {
    RequestLog log;
    const auto ring = log.ring("hello", 7);
    ring->add({.method = std::string(40, 'M'), .path = "/" + std::string(9000, 'x'), .request_id = "id"});
    std::uint64_t missed = 0;
    const auto one = RequestReader(log, {}).next(missed).at(0);
    CHECK(one.path.size() == RequestRing::kMaxPath);
    CHECK(one.path.ends_with("xx..."));
    CHECK(one.method == std::string(RequestRing::kMaxMethod, 'M'));
    CHECK(one.request_id == "id");
}

TEST_CASE("requests are read while others are added") {
    RequestLog log;
    const auto ring = log.ring("hello", 7);
    constexpr std::uint64_t kEach = 20'000;
    RequestReader reader(log, {});
    std::uint64_t missed = 0, read = 0;
    CHECK(reader.next(missed).empty()); // what was displaced before the first call is not missed
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            for (std::uint64_t n = 0; n < kEach; ++n)
                add(*ring, "/", n % 50 == 0 ? 500 : 200);
        });
    while (read + missed < 2 * kEach)
        read += reader.next(missed).size();
    CHECK(read + missed == 2 * kEach);
}
