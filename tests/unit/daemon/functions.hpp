// A pool of workers with functions whose processes are broken workers, and requests to them. Also for tests/fuzz:
// no Catch2 here.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "src/daemon/cache_service.hpp"
#include "src/daemon/log_store.hpp"
#include "src/daemon/metrics.hpp"
#include "src/daemon/worker_pool.hpp"
#include "tests/unit/daemon/broken_worker.hpp"
#include "tests/unit/store/samples.hpp"

namespace kvmserver::daemon::test {

// Who asks.
class Asker : public http::RequestWaiter {
public:
    void connected(tinykvm::UniqueFd to) override {
        const std::lock_guard lock(mutex_);
        socket_ = std::move(to);
        answered_ = true;
        changed_.notify_all();
    }
    void connected_for_rest(tinykvm::UniqueFd to) override { connected(std::move(to)); }
    void replied(std::string with, http::Closing, http::Sender) override {
        const std::lock_guard lock(mutex_);
        reply_ = std::move(with);
        answered_ = true;
        changed_.notify_all();
    }
    void failed(request::Problem why) override {
        const std::lock_guard lock(mutex_);
        problem_ = std::move(why);
        answered_ = true;
        changed_.notify_all();
    }
    void hold(std::unique_ptr<http::Lease> lease) {
        const std::lock_guard lock(mutex_);
        lease_ = std::move(lease);
    }
    bool abandoned() const override { return false; }

    // Whether there is an answer within that time.
    bool answered(std::chrono::milliseconds within) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, within, [this] { return answered_; });
    }
    int socket() {
        const std::lock_guard lock(mutex_);
        return socket_.get();
    }
    std::optional<std::string> reply() {
        const std::lock_guard lock(mutex_);
        return reply_;
    }
    std::optional<request::Problem> problem() {
        const std::lock_guard lock(mutex_);
        return problem_;
    }
    // Why the program's connection ended. Without the mutex: an answer may come meanwhile, on this thread.
    std::optional<request::Problem> failure() {
        const http::Lease* lease = nullptr;
        {
            const std::lock_guard lock(mutex_);
            lease = lease_.get();
        }
        return lease ? lease->failure() : std::nullopt;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool answered_ = false;
    tinykvm::UniqueFd socket_;
    std::unique_ptr<http::Lease> lease_;
    std::optional<std::string> reply_;
    std::optional<request::Problem> problem_;
};

struct Functions {
    explicit Functions(std::uint64_t max_machines)
        : pool(
              store, cache, storages, logs, metrics, {.max_machines = max_machines, .log_rate = 0, .memory_reserve = 0},
              JailSettings{jail::Mode::off, {}, {}}, examinations, [](const Request&) {}, [](const std::string&) {}) {}

    // A version of a function that nothing is known of yet.
    std::shared_ptr<FunctionVersion> add(unsigned max = 2, unsigned queue = 4, bool suspends = false) {
        FunctionVersion::Facts facts;
        facts.version = ++versions_;
        facts.function = "f" + std::to_string(facts.version);
        facts.snapshot = hold.digest();
        facts.max = max;
        facts.queue = queue;
        facts.kept = facts.suspends = suspends;
        facts.idle_ns = 3600ull * 1'000'000'000;
        auto version = std::make_shared<FunctionVersion>(facts);
        pool.adopt(version);
        return version;
    }
    std::shared_ptr<Asker> ask(const std::shared_ptr<FunctionVersion>& version) {
        auto asker = std::make_shared<Asker>();
        asker->hold(pool.submit(
            version, {.request_id = "0123456789abcdef", .client_ip = "127.0.0.1", .opening = "GET / HTTP/1.1\r\n\r\n"},
            asker));
        return asker;
    }

    store::test::TempFolder folder;
    store::Store store{folder / "store"};
    store::SnapshotHold hold = store::test::import(store, store::test::sample_pieces(1));
    LogStore logs{""};
    Metrics metrics;
    CacheService cache{FolderCache("")}; // none
    StorageService storages{[](StorageConnection) { return protocol::StorageAnswer{}; }, [](const std::string&) {}};
    Workers workers;                                       // before what starts them
    Examinations examinations{Examinations::Operations{}}; // none: there are no jails
    WorkerPool pool;

private:
    std::uint64_t versions_ = 0;
};

} // namespace kvmserver::daemon::test
