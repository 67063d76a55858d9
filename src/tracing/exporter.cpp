#include "src/tracing/exporter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvmserver::tracing {
namespace {

std::uint64_t spans_of(const std::vector<RequestTrace>& requests) {
    return std::accumulate(requests.begin(), requests.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const RequestTrace& one) { return sum + one.spans(); });
}

} // namespace

Exporter::Exporter(Resource resource, Send send, std::function<void(const std::string&)> say, Limits limits)
    : resource_(std::move(resource)), send_(std::move(send)), say_(std::move(say)), limits_(limits),
      thread_([this] { run(); }) {}

Exporter::~Exporter() {
    {
        std::unique_lock lock(mutex_);
        ending_ = true;
        changed_.notify_all();
        ended_changed_.wait_for(lock, limits_.last_patience, [this] { return ended_; });
    }
    stop_ = true;
    stop_.notify_all();
    thread_.join();
}

void Exporter::add(RequestTrace request) {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= limits_.queue) {
        counts_.dropped += request.spans();
        return;
    }
    queue_.push_back(std::move(request));
    if (queue_.size() == 1 || queue_.size() == limits_.batch) // what the thread waits for
        changed_.notify_one();
}

SpanCounts Exporter::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

void Exporter::run() {
    while (take_batch())
        send_batch();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ended_changed_.notify_all();
}

// Returns false at the end.
bool Exporter::take_batch() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    changed_.wait_for(lock, limits_.gather, [this] { return ending_ || queue_.size() >= limits_.batch; });
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), limits_.batch));
    batch_.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
    queue_.erase(queue_.begin(), end);
    return !batch_.empty();
}

void Exporter::send_batch() {
    const std::string body = otlp_json(resource_, batch_, ids_);
    const std::uint64_t spans = spans_of(batch_);
    batch_.clear();
    Time wait = limits_.first_pause;
    for (unsigned attempt = 1;; ++attempt) {
        if (stop_)
            return drop(spans, "the daemon ends");
        Sent sent = send_(body, stop_);
        if (sent.how == Sent::How::accepted) {
            const std::uint64_t rejected = std::min(sent.rejected, spans); // the collector may say anything
            {
                const std::lock_guard lock(mutex_);
                counts_.sent += spans - rejected;
            }
            if (rejected != 0)
                return drop(rejected, std::move(sent.why));
            return tell(true);
        }
        why_ = sent.why;
        tell(false);
        const Time pause = std::min(std::max(wait, sent.wait), limits_.longest_pause);
        if (sent.how == Sent::How::refused || attempt >= limits_.attempts || !keep_on(pause))
            return drop(spans, std::move(sent.why));
        wait *= 2;
    }
}

// Waits before another attempt. Returns false if there is to be none.
bool Exporter::keep_on(Time pause) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, pause, [this] { return ending_; });
}

void Exporter::drop(std::uint64_t spans, std::string why) {
    {
        const std::lock_guard lock(mutex_);
        counts_.dropped += spans;
    }
    why_ = std::move(why);
    tell(false);
}

// `well`: a batch was just accepted.
void Exporter::tell(bool well) {
    const std::uint64_t dropped = counts().dropped;
    const Clock::time_point now = Clock::now();
    if (dropped != told_) {
        if (!losing_) {
            lost_before_ = told_;
            say_(fmt::format("traces: spans are dropped: {}", why_.empty() ? "the collector is too slow" : why_));
        }
        losing_ = true;
        lost_last_ = now;
        told_ = dropped;
    } else if (well && losing_ && now - lost_last_ >= limits_.calm) {
        losing_ = false;
        say_(fmt::format("traces: the collector takes all spans again; {} were dropped", dropped - lost_before_));
    }
    if (well)
        why_.clear();
}

} // namespace kvmserver::tracing
