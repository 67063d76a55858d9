#include "src/daemon/request_log.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>

namespace kvmserver::daemon {

namespace {

std::uint64_t now_us() {
    using namespace std::chrono;
    return static_cast<std::uint64_t>(duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
}

std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> serials{0};
    return ++serials;
}

} // namespace

bool failed(unsigned status, request::Outcome outcome) {
    return status >= 500 || (outcome != request::Outcome::ok && !request::by_client(outcome));
}

std::string LoggedRequest::text() const {
    const bool ok = outcome == request::Outcome::ok;
    return fmt::format("{} {} {}{}{}", method, path, status == 0 ? "-" : std::to_string(status), ok ? "" : " ",
                       ok ? std::string_view() : request::log_word(outcome));
}

std::string LoggedRequest::json() const {
    const nlohmann::ordered_json out{{"id", id},
                                     {"ms", ms},
                                     {"function", function},
                                     {"version", version},
                                     {"stream", "request"},
                                     {"request_id", request_id},
                                     {"method", method},
                                     {"path", path},
                                     {"status", status},
                                     {"total_us", total_us},
                                     {"outcome", request::log_word(outcome)},
                                     {"text", text()}};
    return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RequestRing::RequestRing() : serial_(next_serial()) {}

void RequestRing::add(const FinishedRequest& request) {
    constexpr std::string_view cut = "...";
    const std::string_view method = request.method.substr(0, kMaxMethod);
    const std::string_view request_id = request.request_id.substr(0, 255);
    const bool is_long = request.path.size() > kMaxPath;
    const std::string_view path = is_long ? request.path.substr(0, kMaxPath - cut.size()) : request.path;
    const std::uint64_t us = now_us();

    const std::lock_guard lock(mutex_);
    Kind& kind = kinds_[failed(request.status, request.outcome) ? 1 : 0];
    if (kind.places.size() < kKept)
        kind.places.emplace_back();
    Place& place = kind.places[kind.count++ % kKept];
    place.id = last_id_ = std::max(last_id_ + 1, us);
    place.ms = request.ms;
    place.version = request.version;
    place.total_us = request.total_us;
    place.status = request.status;
    place.outcome = request.outcome;
    place.method_bytes = static_cast<std::uint8_t>(method.size());
    place.request_id_bytes = static_cast<std::uint8_t>(request_id.size());
    place.text.assign(method).append(request_id).append(path).append(is_long ? cut : std::string_view());
}

LoggedRequest RequestRing::logged(const Place& place) {
    LoggedRequest out;
    out.id = place.id;
    out.ms = place.ms;
    out.version = place.version;
    out.status = place.status;
    out.outcome = place.outcome;
    out.total_us = place.total_us;
    out.method = place.text.substr(0, place.method_bytes);
    out.request_id = place.text.substr(place.method_bytes, place.request_id_bytes);
    out.path = place.text.substr(std::size_t{place.method_bytes} + place.request_id_bytes);
    return out;
}

std::uint64_t RequestRing::read(const RequestQuery& query, Position& position,
                                std::vector<LoggedRequest>& found) const {
    std::vector<LoggedRequest> mine;
    std::uint64_t missed = 0;
    {
        const std::lock_guard lock(mutex_);
        const bool begins = position.ring != serial_;
        position.ring = serial_;
        for (std::size_t i = query.errors ? 1 : 0; i < kinds_.size(); ++i) {
            const Kind& kind = kinds_[i];
            const std::uint64_t oldest = kind.count - kind.places.size();
            std::uint64_t number = begins ? oldest : position.read[i];
            if (number < oldest)
                missed += oldest - std::exchange(number, oldest);
            for (; number < kind.count; ++number) {
                const Place& place = kind.places[number % kKept];
                if (place.ms >= query.since_ms && (!query.version || place.version == *query.version))
                    mine.push_back(logged(place));
            }
            position.read[i] = kind.count;
        }
    }
    std::erase_if(mine, [&](const LoggedRequest& one) {
        return (!query.request_id.empty() && one.request_id != query.request_id) ||
               (one.request_id.find(query.contains) == std::string::npos &&
                one.text().find(query.contains) == std::string::npos);
    });
    std::ranges::sort(mine, {}, &LoggedRequest::id);
    std::ranges::move(mine, std::back_inserter(found));
    return missed;
}

std::shared_ptr<RequestRing> RequestLog::ring(const std::string& function, std::int64_t created) {
    const std::lock_guard lock(mutex_);
    const auto known = rings_.find({function, created});
    if (known != rings_.end())
        if (auto ring = known->second.lock())
            return ring;
    if (rings_.size() >= sweep_at_) {
        std::erase_if(rings_, [](const auto& entry) { return entry.second.expired(); });
        sweep_at_ = 16 + 2 * rings_.size();
    }
    auto made = std::make_shared<RequestRing>();
    rings_[{function, created}] = made;
    return made;
}

std::shared_ptr<RequestRing> RequestLog::find(const std::string& function, std::int64_t created) const {
    const std::lock_guard lock(mutex_);
    const auto known = rings_.find({function, created});
    return known == rings_.end() ? nullptr : known->second.lock();
}

std::map<RequestLog::Identity, std::shared_ptr<const RequestRing>> RequestLog::rings(const RequestQuery& query) const {
    std::map<Identity, std::shared_ptr<const RequestRing>> out;
    const std::lock_guard lock(mutex_);
    for (const auto& [identity, held] : rings_)
        if (query.function.empty() || identity == Identity{query.function, query.created})
            if (auto ring = held.lock())
                out.emplace(identity, std::move(ring));
    return out;
}

std::vector<LoggedRequest> RequestReader::next(std::uint64_t& missed) {
    std::vector<LoggedRequest> found;
    std::map<RequestLog::Identity, RequestRing::Position> positions;
    for (const auto& [identity, ring] : log_.rings(query_)) {
        RequestRing::Position& position = positions[identity] = positions_[identity];
        const std::size_t before = found.size();
        missed += ring->read(query_, position, found);
        for (std::size_t i = before; i < found.size(); ++i)
            found[i].function = identity.first;
    }
    positions_ = std::move(positions);
    std::ranges::stable_sort(found, {}, &LoggedRequest::id);
    return found;
}

} // namespace kvmserver::daemon
