// The exporter's queue, its attempts and what it says.
#include "src/tracing/exporter.hpp"

#include <future>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"

using namespace kvmserver;
using namespace kvmserver::tracing;
using How = Sent::How;
using namespace std::chrono_literals;

namespace {

RequestTrace request(const std::string& path) {
    RequestTrace out;
    out.method = "GET";
    out.path = path;
    out.queue = Period{}; // so that it has two spans
    return out;
}

// Replies as a list says, then accepts all. Notes what it got.
class FakeCollector {
public:
    explicit FakeCollector(std::vector<Sent> replies = {}) : replies_(std::move(replies)) {}
    Sent operator()(const std::string& body, const std::atomic<bool>&) {
        std::unique_lock lock(mutex_);
        ++asked_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !held_; });
        const Sent reply = asked_ <= replies_.size() ? replies_[asked_ - 1] : Sent{};
        if (reply.how == How::accepted)
            note(nlohmann::json::parse(body));
        return reply;
    }
    void hold() {
        const std::lock_guard lock(mutex_);
        held_ = true;
    }
    void release() {
        const std::lock_guard lock(mutex_);
        held_ = false;
        changed_.notify_all();
    }
    void wait_asked(std::size_t times) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return asked_ >= times; });
    }
    std::vector<std::string> paths; // read it when the exporter has ended

private:
    void note(const nlohmann::json& body) {
        for (const auto& span : body.at("resourceSpans")[0].at("scopeSpans")[0].at("spans"))
            if (span.contains("attributes"))
                for (const auto& one : span.at("attributes"))
                    if (one.at("key") == "url.path")
                        paths.push_back(one.at("value").at("stringValue"));
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    const std::vector<Sent> replies_;
    std::size_t asked_ = 0;
    bool held_ = false;
};

struct Bench {
    explicit Bench(std::vector<Sent> replies, Exporter::Limits limits) : collector(std::move(replies)) {
        exporter = std::make_unique<Exporter>(
            Resource{}, [this](const auto& body, const auto& stop) { return collector(body, stop); },
            [this](const std::string& line) { lines.push_back(line); }, limits);
    }
    SpanCounts end() {
        collector.release();
        while (exporter->counts().sent + exporter->counts().dropped < expected)
            std::this_thread::yield();
        const SpanCounts counts = exporter->counts();
        exporter.reset();
        return counts;
    }
    FakeCollector collector;
    std::vector<std::string> lines; // read it when the exporter has ended
    std::uint64_t expected = 0;
    std::unique_ptr<Exporter> exporter;
};

constexpr Exporter::Limits kQuick{.queue = 4, .batch = 2, .gather = 0ms, .first_pause = 1ms, .calm = 0ms};

} // namespace

TEST_CASE("a full queue drops what is new, and says it once") {
    Bench bench({}, kQuick);
    bench.collector.hold();
    bench.exporter->add(request("/first"));
    bench.collector.wait_asked(1);
    for (const char* path : {"/1", "/2", "/3", "/4", "/dropped", "/dropped"})
        bench.exporter->add(request(path));
    CHECK(bench.exporter->counts().dropped == 4);
    CHECK(bench.exporter->counts().sent == 0);
    bench.expected = 14;
    const SpanCounts counts = bench.end();
    CHECK(counts.sent == 10);
    CHECK(counts.dropped == 4);
    CHECK(bench.collector.paths == std::vector<std::string>{"/first", "/1", "/2", "/3", "/4"});
    REQUIRE(bench.lines.size() == 2); // calm: 0, so that the next success ends it
    CHECK(bench.lines[0] == "traces: spans are dropped: the collector is too slow");
    CHECK(bench.lines[1] == "traces: the collector takes all spans again; 4 were dropped");
}

TEST_CASE("a collector that is away for a moment loses nothing, and nothing is said") {
    const Sent later{.how = How::try_later, .why = "it is away"};
    Bench bench({later, later}, kQuick);
    bench.exporter->add(request("/a"));
    bench.expected = 2;
    const SpanCounts counts = bench.end();
    CHECK(counts.sent == 2);
    CHECK(counts.dropped == 0);
    CHECK(bench.collector.paths == std::vector<std::string>{"/a"});
    CHECK(bench.lines.empty());
}

TEST_CASE("after all attempts a batch is dropped, and the next is tried") {
    const Sent later{.how = How::try_later, .why = "it is away"};
    Exporter::Limits limits = kQuick;
    limits.attempts = 2;
    limits.calm = 1h;
    Bench bench({later, later, later, later}, limits);
    for (const char* path : {"/a", "/b"}) {
        bench.exporter->add(request(path));
        bench.expected += 2;
        while (bench.exporter->counts().dropped < bench.expected)
            std::this_thread::yield();
    }
    bench.exporter->add(request("/c"));
    bench.expected += 2;
    const SpanCounts counts = bench.end();
    CHECK(counts.sent == 2);
    CHECK(counts.dropped == 4);
    CHECK(bench.collector.paths == std::vector<std::string>{"/c"});
    CHECK(bench.lines == std::vector<std::string>{"traces: spans are dropped: it is away"});
}

TEST_CASE("what is refused is not tried again; of what is rejected only that is counted") {
    Bench bench({{.how = How::refused, .why = "no"}, {.why = "too long", .rejected = 1}, {.why = "?", .rejected = 999}},
                kQuick);
    for (const std::uint64_t sum : {2, 4, 6}) {
        bench.exporter->add(request("/x"));
        while (bench.exporter->counts().sent + bench.exporter->counts().dropped < sum)
            std::this_thread::yield();
    }
    const SpanCounts counts = bench.end();
    CHECK(counts.dropped == 5);
    CHECK(counts.sent == 1);
    CHECK(bench.lines == std::vector<std::string>{"traces: spans are dropped: no"});
}

TEST_CASE("what waits is sent at the end, and a collector that is away does not hold it up") {
    FakeCollector collector;
    {
        Exporter::Limits limits = kQuick;
        limits.gather = 1h;
        Exporter exporter(
            Resource{}, [&](const auto& body, const auto& stop) { return collector(body, stop); },
            [](const std::string&) {}, limits);
        exporter.add(request("/a"));
    }
    CHECK(collector.paths == std::vector<std::string>{"/a"});

    std::vector<std::string> lines;
    Exporter::Limits limits = kQuick;
    limits.first_pause = limits.longest_pause = 1h;
    limits.last_patience = 1ms;
    std::promise<void> asked;
    {
        Exporter exporter(
            Resource{},
            [&, first = true](const std::string&, const std::atomic<bool>& stop) mutable {
                if (std::exchange(first, false))
                    asked.set_value();
                stop.wait(false); // an attempt that would take for ever
                return Sent{.how = How::try_later, .why = "stopped"};
            },
            [&](const std::string& line) { lines.push_back(line); }, limits);
        exporter.add(request("/b"));
        asked.get_future().wait();
    }
    CHECK(lines == std::vector<std::string>{"traces: spans are dropped: stopped"});
}
