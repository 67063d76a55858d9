// Asks an HTTP server on this machine and prints what it took, as one line of JSON. One thread.
//
//   load PORT [--connections N] [--keep-alive] [--requests N | --seconds S] [--path /] [--timeout S]
//
// A sample begins before connect() (a new connection each; the request says `Connection: close`) or before
// send() (--keep-alive) and ends at the last byte of the reply. With a new connection each the server's close
// is waited for before the next request, which counts for requests a second but not for the sample. One
// connection is served with blocking calls, more with epoll; a connection asks again as soon as it has its
// reply.
#include <sys/epoll.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>

#include "bench/load/connection.hpp"

using namespace kvmserver::load;
using Wait = Client::Wait;

namespace {

struct Options {
    std::uint16_t port = 0;
    unsigned connections = 1;
    bool keep_alive = false;
    std::uint64_t requests = 0; // 0: as many as fit
    double seconds = 0, timeout = 10;
    std::string path = "/";
};

[[noreturn]] void usage(const std::string& what) {
    std::fprintf(stderr,
                 "load: %s\nusage: load PORT [--connections N] [--keep-alive] [--requests N | --seconds S] "
                 "[--path /] [--timeout S]\n",
                 what.c_str());
    std::exit(2);
}

template <class Number>
Number number(std::string_view name, std::string_view text, Number least, Number most) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most))
        usage(std::string(name) + ": not a fitting number: " + std::string(text));
    return value;
}

Options parse(int argc, char** argv) {
    Options o;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        const auto value = [&]() -> std::string_view { return i + 1 < argc ? argv[++i] : ""; };
        if (name == "--connections")
            o.connections = number<unsigned>(name, value(), 1, 10'000);
        else if (name == "--keep-alive")
            o.keep_alive = true;
        else if (name == "--requests")
            o.requests = number<std::uint64_t>(name, value(), 1, UINT64_MAX);
        else if (name == "--seconds")
            o.seconds = number<double>(name, value(), 0.001, 1e6);
        else if (name == "--timeout")
            o.timeout = number<double>(name, value(), 1, 1e6);
        else if (name == "--path")
            o.path = value();
        else if (!name.starts_with("-"))
            o.port = number<std::uint16_t>("PORT", name, 1, 65535);
        else
            usage("unknown option " + std::string(name));
    }
    if (o.port == 0)
        usage("which port?");
    if (o.requests == 0 && o.seconds == 0)
        usage("--requests or --seconds says when to stop");
    return o;
}

// How much is still to be asked.
class Budget {
public:
    explicit Budget(const Options& o, const Tally& tally)
        : left_(o.requests == 0 ? UINT64_MAX : o.requests), tally_(tally),
          end_(o.seconds == 0 ? Clock::time_point::max()
                              : Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(o.seconds))) {}
    // One more request? A server that only fails is not worth asking on.
    bool take() { return left_ > 0 && Clock::now() < end_ && tally_.in_a_row < 100 && left_-- > 0; }

private:
    std::uint64_t left_;
    const Tally& tally_;
    Clock::time_point end_;
};

void back_off(const Tally& tally) {
    if (tally.in_a_row > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void ask_blocking(const Target& target, Tally& tally, Budget& budget) {
    const auto client = std::make_unique<Client>(target, tally);
    while (budget.take()) {
        Wait wait = client->start();
        while (wait != Wait::nothing)
            wait = client->go_on(wait);
        back_off(tally);
    }
}

class Crowd {
public:
    Crowd(unsigned count, const Target& target, Tally& tally, Budget& budget)
        : tally_(tally), budget_(budget), epoll_(::epoll_create1(EPOLL_CLOEXEC)), waits_(count, Wait::nothing),
          known_(count) {
        for (unsigned i = 0; i < count; ++i)
            clients_.push_back(std::make_unique<Client>(target, tally));
    }

    void ask() {
        for (unsigned i = 0; i < clients_.size(); ++i)
            next(i);
        std::array<epoll_event, 64> events;
        while (busy_ > 0) {
            const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), 100);
            for (int e = 0; e < ready; ++e) {
                const unsigned i = events[e].data.u32;
                became(i, clients_[i]->go_on(waits_[i]));
            }
            if (ready == 0)
                drop_overdue();
        }
    }

private:
    void next(unsigned i) {
        if (!budget_.take()) {
            waits_[i] = Wait::nothing;
            return clients_[i]->close(); // so that a server of one connection at a time gets to the others
        }
        back_off(tally_);
        ++busy_;
        became(i, clients_[i]->start());
    }

    void became(unsigned i, Wait wait) {
        if (wait != Wait::nothing)
            return watch(i, wait);
        --busy_;
        next(i);
    }

    void watch(unsigned i, Wait wait) {
        const bool same = known_[i] == clients_[i]->opened();
        if (same && waits_[i] == wait)
            return;
        epoll_event event{};
        event.events = wait == Wait::writable ? EPOLLOUT : EPOLLIN;
        event.data.u32 = i;
        ::epoll_ctl(epoll_.get(), same ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, clients_[i]->fd(), &event);
        waits_[i] = wait;
        known_[i] = clients_[i]->opened();
    }

    void drop_overdue() {
        const Clock::time_point now = Clock::now();
        for (unsigned i = 0; i < clients_.size(); ++i)
            if (waits_[i] != Wait::nothing && clients_[i]->overdue(now))
                became(i, clients_[i]->fail("timed out"));
    }

    Tally& tally_;
    Budget& budget_;
    tinykvm::UniqueFd epoll_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::vector<Wait> waits_;
    std::vector<std::uint64_t> known_; // which connection of each client is in the epoll set
    unsigned busy_ = 0;
};

double percentile(const std::vector<double>& sorted, double share) {
    if (sorted.empty())
        return 0;
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
    return sorted[std::max<std::size_t>(rank, 1) - 1];
}

void print(Tally& t, Clock::time_point begin) {
    std::sort(t.latencies_us.begin(), t.latencies_us.end());
    const auto& all = t.latencies_us;
    const double seconds = std::max(1e-9, std::chrono::duration<double>(t.last_reply - begin).count());
    std::string error;
    for (const char c : t.first_error)
        error += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    std::printf("{\"requests\": %zu, \"errors\": %llu, \"wrong\": %llu, \"reopened\": %llu, \"seconds\": %.6f, "
                "\"requests_per_second\": %.1f, \"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f, \"max_us\": "
                "%.2f, "
                "\"first_error\": \"%s\"}\n",
                all.size(), static_cast<unsigned long long>(t.errors), static_cast<unsigned long long>(t.wrong),
                static_cast<unsigned long long>(t.reopened), seconds, static_cast<double>(all.size()) / seconds,
                percentile(all, 0.5), percentile(all, 0.9), percentile(all, 0.99), percentile(all, 1), error.c_str());
}

} // namespace

int main(int argc, char** argv) {
    const Options o = parse(argc, argv);
    Target target{o.port, o.keep_alive, o.connections == 1, o.timeout, {}};
    target.request =
        "GET " + o.path + " HTTP/1.1\r\nHost: localhost\r\n" + (o.keep_alive ? "" : "Connection: close\r\n") + "\r\n";
    Tally tally;
    tally.latencies_us.reserve(1 << 20);
    const Clock::time_point begin = tally.last_reply = Clock::now();
    Budget budget(o, tally);
    if (o.connections == 1)
        ask_blocking(target, tally, budget);
    else
        Crowd(o.connections, target, tally, budget).ask();
    print(tally, begin);
    return tally.latencies_us.empty() ? 1 : 0;
}
