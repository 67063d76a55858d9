#include "src/http/worker.hpp"

#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <exception>

#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

namespace kvmserver::http {

Worker::Worker(Shared& shared) : shared_(shared), io_(1), guard_(io_.get_executor()) {}

Worker::~Worker() {
    guard_.reset();
    if (thread_.joinable())
        thread_.join();
}

void Worker::start() {
    thread_ = std::thread([this] {
        // Signals are for the process's own threads.
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        for (;;) {
            try {
                io_.run();
                return;
            } catch (const std::exception& error) { // from one handler: the others go on
                std::fprintf(stderr, "kvmserver: a step of a client connection failed: %s\n", error.what());
            }
        }
    });
}

void Worker::deal(Accepted client) {
    bump(counters_.dealt, 1);
    asio::dispatch(io_, [this, client = std::move(client)]() mutable {
        try {
            std::make_shared<Connection>(*this, std::move(client.ip), std::move(client.tls), std::move(client.place))
                ->start(std::move(client.socket));
        } catch (const std::exception& error) { // no memory or descriptor: only this client is dropped
            std::fprintf(stderr, "kvmserver: a client connection is dropped: %s\n", error.what());
        }
    });
}

void Worker::drain() {
    asio::post(io_, [this] {
        for (Connection* connection : connections_)
            connection->close_if_idle();
    });
}

void Worker::stop() {
    asio::post(io_, [this] {
        for (Connection* connection : connections_)
            connection->stop();
    });
}

void Worker::spawn(std::function<void(Yield)> coroutine) {
    asio::spawn(
        io_.get_executor(), std::allocator_arg, StackAllocator{&stacks_},
        [coroutine = std::move(coroutine)](Yield yield) {
            try {
                coroutine(std::move(yield));
            } catch (const std::exception& error) { // such as out of memory
                std::fprintf(stderr, "kvmserver: a client connection is dropped: %s\n", error.what());
            }
        },
        asio::detached);
}

void Worker::add(Connection& connection) { connections_.insert(&connection); }

void Worker::remove(Connection& connection) {
    connections_.erase(&connection);
    counters_.closed.store(counters_.closed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    if (draining()) {
        const std::lock_guard lock(shared_.mutex);
        shared_.gone.notify_all();
    }
}

void Worker::finished(const RequestRecord& record) {
    bump(counters_.in_flight, ~std::uint64_t{0});
    bump(counters_.requests, 1);
    bump(counters_.bytes_in, record.bytes_in);
    bump(counters_.bytes_out, record.bytes_out);
    bump(counters_.by_outcome[static_cast<unsigned>(record.outcome)], 1);
    bump(counters_.by_class[record.status / 100 % 6], 1);
    if (shared_.observer)
        shared_.observer->finished(record);
}

void Worker::add_counters(Counters& sum) const {
    sum.connections += counters_.dealt.load(std::memory_order_relaxed);
    sum.open_connections += open_connections();
    sum.requests += counters_.requests.load(std::memory_order_relaxed);
    sum.in_flight += counters_.in_flight.load(std::memory_order_relaxed);
    sum.bytes_in += counters_.bytes_in.load(std::memory_order_relaxed);
    sum.bytes_out += counters_.bytes_out.load(std::memory_order_relaxed);
    for (unsigned i = 0; i < kOutcomes; ++i)
        sum.by_outcome[i] += counters_.by_outcome[i].load(std::memory_order_relaxed);
    for (unsigned i = 0; i < 6; ++i)
        sum.by_class[i] += counters_.by_class[i].load(std::memory_order_relaxed);
}

} // namespace kvmserver::http
