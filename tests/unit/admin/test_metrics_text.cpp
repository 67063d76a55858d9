// What Prometheus reads.
#include "tests/catch.hpp"

#include <set>
#include <sstream>

#include "src/admin/metrics_text.hpp"

using namespace kvmserver::admin;
using kvmserver::daemon::VersionLive;

namespace {

VersionLive process(unsigned machines, unsigned busy, std::uint64_t queued, std::uint64_t starts,
                    std::uint64_t memory) {
    VersionLive live;
    live.function = "hello";
    live.version = 2;
    live.machines = machines;
    live.busy = busy;
    live.queued = queued;
    live.starts = starts;
    live.memory_bytes = memory;
    return live;
}

} // namespace

TEST_CASE("what is unknown has no sample") {
    Scrape scrape;
    CHECK(metrics_text(scrape).find("certificate_expiry") == std::string::npos);
    CHECK(metrics_text(scrape).find("store_disk") == std::string::npos);
    CHECK(metrics_text(scrape).find("spans") == std::string::npos);
    scrape.metrics.certificate_expiry = 1'800'000'000;
    scrape.metrics.spans = {.sent = 7, .dropped = 2};
    scrape.disk = {.capacity = 100, .free = 50, .available = 40};
    const std::string text = metrics_text(scrape);
    CHECK(text.find("\nkvmserver_certificate_expiry_time_seconds 1800000000\n") != text.npos);
    CHECK(text.find("\nkvmserver_store_disk_bytes 100\n") != text.npos);
    CHECK(text.find("\nkvmserver_spans_total 7\n") != text.npos);
    CHECK(text.find("\nkvmserver_spans_dropped_total 2\n") != text.npos);
    CHECK(text.find("\nkvmserver_store_disk_free_bytes 40\n") != text.npos);
}

TEST_CASE("a version with two processes is one row of samples") {
    // One that stops still finishes its requests while the next one takes new ones.
    Scrape scrape;
    scrape.live = {process(4, 3, 1, 5, 1000), process(2, 1, 7, 5, 500)};
    scrape.live.push_back(process(1, 0, 0, 1, 10));
    scrape.live.back().version = 3;
    const std::string text = metrics_text(scrape);

    std::istringstream lines(text);
    std::set<std::string> series;
    for (std::string line; std::getline(lines, line);)
        if (!line.starts_with('#')) {
            INFO(line);
            CHECK(series.insert(line.substr(0, line.rfind(' '))).second); // else the whole scrape is refused
        }
    const auto has = [&](const std::string& line) { return text.find("\n" + line + "\n") != text.npos; };
    CHECK(has(R"(kvmserver_vms{function="hello",version="2",state="busy"} 4)"));
    CHECK(has(R"(kvmserver_vms{function="hello",version="2",state="ready"} 2)"));
    CHECK(has(R"(kvmserver_queued_requests{function="hello",version="2"} 8)"));
    CHECK(has(R"(kvmserver_memory_bytes{function="hello",version="2",kind="pss"} 1500)"));
    CHECK(has(R"(kvmserver_process_starts_total{function="hello",version="2"} 5)"));
    CHECK(has(R"(kvmserver_vms{function="hello",version="3",state="ready"} 1)"));
}
