// .../logs: NDJSON, one object per log line.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "src/admin/handlers.hpp"
#include "src/common/clock.hpp"
#include "src/daemon/control.hpp"
#include "src/ops/when.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::admin {

namespace {

using Clock = std::chrono::steady_clock;
using daemon::LogLine;
using daemon::LogStore;

// A bounded queue between the logging thread and the sending one: a client that is too slow loses lines.
class Arrivals {
public:
    void put(const LogLine& line) {
        const std::lock_guard lock(mutex_);
        if (lines_.size() < kMax)
            lines_.push_back(line);
        else
            ++lost_;
        some_.notify_one();
    }
    // Waits up to `patience` for lines and takes all of them.
    std::deque<LogLine> take(std::chrono::milliseconds patience, std::uint64_t& lost) {
        std::unique_lock lock(mutex_);
        some_.wait_for(lock, patience, [this] { return !lines_.empty(); });
        lost = std::exchange(lost_, 0);
        return std::exchange(lines_, {});
    }

private:
    static constexpr std::size_t kMax = 10'000;
    std::mutex mutex_;
    std::condition_variable some_;
    std::deque<LogLine> lines_;
    std::uint64_t lost_ = 0;
};

void send(Call& call, const std::string& line) {
    const std::string text = line + "\n";
    call.exchange.write(std::as_bytes(std::span(text)));
}

LogStore::Query query_of(Call& call) {
    LogStore::Query query;
    if (const auto since = call.query("since"))
        query.since_ms = ops::time_from(*since, now_ms());
    if (call.has_param("name")) {
        query.function = call.param("name");
        // Leave out what an earlier function of that name printed. Throws NotFound if there is none now.
        const auto created = store::Functions(call.store()).describe(query.function).created;
        query.since_ms = std::max(query.since_ms, created);
    }
    query.version = call.query_number("version");
    query.request_id = call.query("request_id").value_or("");
    query.last = call.query_number("tail").value_or(0);
    return query;
}

} // namespace

void logs(Call& call) {
    const LogStore::Query query = query_of(call);
    const bool follow = call.query_flag("follow");
    std::optional<Api::Following> place;
    if (follow && call.request.method != "HEAD")
        place.emplace(call.api, call.request.peer.has_value());
    LogStore& store = call.api.control().logs();
    const auto arrivals = std::make_shared<Arrivals>();
    std::shared_ptr<LogStore::Follower> follower; // subscribes before the stored lines are read, so no line is missed
    if (follow)
        follower = store.follow(query, [arrivals](const LogLine& line) { arrivals->put(line); });
    const std::vector<LogLine> there = store.lines(query);
    call.exchange.begin(200, {{"Content-Type", "application/x-ndjson"}, {"Cache-Control", "no-store"}}, std::nullopt);
    if (call.request.method == "HEAD")
        return;
    std::uint64_t seen = 0;
    for (const LogLine& line : there) {
        send(call, line.json());
        seen = line.id;
    }
    auto sent = Clock::now();
    while (follow && !call.api.ending() && !call.exchange.gone_within(0)) {
        std::uint64_t lost = 0;
        const auto say = [&](const std::string& line) {
            send(call, line);
            sent = Clock::now();
        };
        for (const LogLine& line : arrivals->take(std::chrono::milliseconds(250), lost))
            if (line.id > seen)
                say(line.json());
        if (lost)
            say(json{{"stream", "daemon"}, {"text", std::to_string(lost) + " lines were left out"}}.dump());
        // Proxies close connections that are silent for long.
        if (Clock::now() - sent >= call.api.options().follow_quiet)
            say("");
    }
}

} // namespace kvmserver::admin
