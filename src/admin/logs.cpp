// .../logs: NDJSON, one object per log line or request.
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

// How often a follower reads the new requests. They are not delivered one by one, so that serving costs the same
// whether somebody follows or not.
constexpr std::chrono::milliseconds kRequestStep{50}, kLineStep{250};

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

struct LogQuestion {
    LogStore::Query lines;
    std::optional<daemon::RequestReader> requests;
};

LogQuestion wanted_by(Call& call, LogStore& store) {
    LogStore::Query query;
    std::int64_t created = 0;
    if (const auto since = call.query("since"))
        query.since_ms = ops::time_from(*since, now_ms());
    if (call.has_param("name")) {
        query.function = call.param("name");
        // Leave out what an earlier function of that name printed. Throws NotFound if there is none now.
        created = store::Functions(call.store()).describe(query.function).created;
        query.since_ms = std::max(query.since_ms, created);
    }
    query.version = call.query_number("version");
    query.request_id = call.query("request_id").value_or("");
    query.contains = call.query("grep").value_or("");
    query.errors = call.query_flag("errors");
    query.last = call.query_number("tail").value_or(0);
    LogQuestion wanted{query, std::nullopt};
    if (call.query_flag("requests"))
        wanted.requests.emplace(store.requests(), daemon::RequestQuery{.function = query.function,
                                                                       .created = created,
                                                                       .since_ms = query.since_ms,
                                                                       .version = query.version,
                                                                       .request_id = query.request_id,
                                                                       .contains = query.contains,
                                                                       .errors = query.errors});
    return wanted;
}

// Sends them in the order of their ids: the last `last`, or all for 0.
void send_merged(Call& call, const std::vector<LogLine>& lines, const std::vector<daemon::LoggedRequest>& requests,
                 std::size_t last) {
    const std::size_t all = lines.size() + requests.size();
    std::size_t skipped = last != 0 && all > last ? all - last : 0;
    auto line = lines.begin();
    auto request = requests.begin();
    while (line != lines.end() || request != requests.end()) {
        const bool is_line = request == requests.end() || (line != lines.end() && line->id <= request->id);
        if (skipped > 0)
            --skipped;
        else
            send(call, is_line ? line->json() : request->json());
        if (is_line)
            ++line;
        else
            ++request;
    }
}

} // namespace

void logs(Call& call) {
    LogStore& store = call.api.control().logs();
    LogQuestion wanted = wanted_by(call, store);
    const bool follow = call.query_flag("follow");
    std::optional<Api::Following> place;
    if (follow && call.request.method != "HEAD")
        place.emplace(call.api, call.request.peer.has_value());
    const auto arrivals = std::make_shared<Arrivals>();
    std::shared_ptr<LogStore::Follower> follower; // subscribes before the stored lines are read, so no line is missed
    if (follow)
        follower = store.follow(wanted.lines, [arrivals](const LogLine& line) { arrivals->put(line); });
    const std::vector<LogLine> there = store.lines(wanted.lines);
    std::uint64_t ignored = 0;
    const auto done = wanted.requests ? wanted.requests->next(ignored) : std::vector<daemon::LoggedRequest>();
    call.exchange.begin(200, {{"Content-Type", "application/x-ndjson"}, {"Cache-Control", "no-store"}}, std::nullopt);
    if (call.request.method == "HEAD")
        return;
    const std::uint64_t seen = there.empty() ? 0 : there.back().id;
    send_merged(call, there, done, wanted.lines.last);
    auto sent = Clock::now();
    while (follow && !call.api.ending() && !call.exchange.gone_within(0)) {
        std::uint64_t lost = 0, lost_requests = 0;
        const auto say = [&](const std::string& line) {
            send(call, line);
            sent = Clock::now();
        };
        const auto say_lost = [&](std::uint64_t count, const char* what) {
            if (count)
                say(json{{"stream", "daemon"}, {"text", std::to_string(count) + what}}.dump());
        };
        for (const LogLine& line : arrivals->take(wanted.requests ? kRequestStep : kLineStep, lost))
            if (line.id > seen)
                say(line.json());
        say_lost(lost, " lines were left out");
        if (wanted.requests)
            for (const daemon::LoggedRequest& request : wanted.requests->next(lost_requests))
                say(request.json());
        say_lost(lost_requests, " requests were left out");
        // Proxies close connections that are silent for long.
        if (Clock::now() - sent >= call.api.options().follow_quiet)
            say("");
    }
}

} // namespace kvmserver::admin
