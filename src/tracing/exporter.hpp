// Sends traced requests to a collector, by a thread of its own: whoever adds one never waits.
//
// A queue of bounded length holds what is to be sent. If it is full, because the collector is away or slow, new
// requests are dropped and counted.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/tracing/otlp_json.hpp"
#include "src/tracing/span_counts.hpp"

namespace kvmserver::tracing {

// How an attempt to send ended.
struct Sent {
    enum class How { accepted, try_later, refused };
    How how = How::accepted;
    std::string why = {};              // unless all was accepted
    std::uint64_t rejected = 0;        // accepted: spans of which the collector took none
    std::chrono::milliseconds wait{0}; // try_later: what the collector asks for; 0: nothing
};

// Returns within some seconds, and soon after `stop` is set. Throws nothing.
using Send = std::function<Sent(const std::string& body, const std::atomic<bool>& stop)>;

class Exporter {
public:
    using Time = std::chrono::milliseconds;
    struct Limits {
        std::size_t queue = 2048;   // requests that wait
        std::size_t batch = 256;    // requests in a message
        Time gather{1000};          // how long a batch may wait to be filled
        Time first_pause{500};      // before the second attempt; each further pause is twice as long
        unsigned attempts = 5;      // for a batch
        Time longest_pause{10'000}; // whatever the collector asks for
        Time last_patience{2000};   // for what is left at the end
        Time calm{30'000};          // without a loss, before a line says that all is well
    };
    // `say` gets a line when spans begin to be lost, and when all is well again.
    Exporter(Resource resource, Send send, std::function<void(const std::string&)> say, Limits limits);
    // Sends what is left, without further attempts.
    ~Exporter();
    Exporter(const Exporter&) = delete;
    Exporter& operator=(const Exporter&) = delete;

    // Any thread. Does not block.
    void add(RequestTrace request);
    SpanCounts counts() const;

private:
    using Clock = std::chrono::steady_clock;
    void run();
    bool take_batch();
    void send_batch();
    bool keep_on(Time pause);
    void drop(std::uint64_t spans, std::string why);
    void tell(bool well);

    const Resource resource_;
    const Send send_;
    const std::function<void(const std::string&)> say_;
    const Limits limits_;
    // Of the thread:
    http::Ids ids_;
    std::vector<RequestTrace> batch_;
    std::string why_;        // of the last failure
    std::uint64_t told_ = 0; // counts_.dropped when tell() looked last
    std::uint64_t lost_before_ = 0;
    bool losing_ = false; // a line said so
    Clock::time_point lost_last_;

    mutable std::mutex mutex_; // guards the following
    std::condition_variable changed_, ended_changed_;
    std::deque<RequestTrace> queue_;
    SpanCounts counts_;
    bool ending_ = false, ended_ = false;

    std::atomic<bool> stop_ = false; // even what is under way is to end
    std::thread thread_;
};

} // namespace kvmserver::tracing
