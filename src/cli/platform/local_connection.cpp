#include "src/cli/platform/local_connection.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "src/admin/api.hpp"
#include "src/cli/events/json_events.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/progress.hpp"
#include "src/daemon/health.hpp"
#include "src/ops/import.hpp"
#include "src/ops/reference.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::platform {
namespace {

// Opens the store when it is needed, since `verify` must work on one that cannot be opened.
class LazyStore final : public admin::StoreSource {
public:
    LazyStore(std::filesystem::path path, Context& context) : path_(std::move(path)), context_(context) {}
    std::filesystem::path path() const override { return path_; }
    store::Store* get() override {
        if (!opened_ && store_exists(path_))
            make();
        return opened_.get();
    }
    store::Store& make() override {
        if (!opened_)
            opened_ = open_store_at(path_, context_);
        return *opened_;
    }

private:
    std::filesystem::path path_;
    Context& context_;
    std::unique_ptr<store::Store> opened_;
};

// Implements --timeout: ends this process, which the store survives at any moment.
class TimeLimit {
public:
    TimeLimit(double seconds, JsonEvents* events)
        : thread_([this, seconds, events] {
              sigset_t all; // signals are for the main thread
              ::sigfillset(&all);
              ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
              std::unique_lock lock(mutex_);
              if (over_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; }))
                  return;
              const std::string message = fmt::format("not done within {:.4g} s (--timeout)", seconds);
              if (events)
                  events->end_with_error(message, static_cast<int>(tinykvm::ExitCode::unreachable));
              const std::string line = "kvmserver: " + message + "\n";
              (void)!::write(STDERR_FILENO, line.data(), line.size());
              ::_exit(static_cast<int>(tinykvm::ExitCode::unreachable));
          }) {}
    ~TimeLimit() {
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        over_.notify_one();
        thread_.join();
    }

private:
    std::mutex mutex_;
    std::condition_variable over_;
    bool done_ = false;
    std::thread thread_; // last: it uses the members above
};

class Here final : public Connection {
public:
    Here(const Invocation& invocation, Context& context)
        : quiet_(flag(invocation, "quiet")), context_(context), source_(store_path(invocation, context), context),
          api_(source_, {}) {
        if (const auto seconds = timeout(invocation))
            limit_.emplace(*seconds, context.events);
    }

    nlohmann::json call(const std::string& method, const std::string& target, const nlohmann::json& body) override {
        try {
            return api_.run(method, target, body);
        } catch (const daemon::Unhealthy& error) {
            print_output(context_, error.output());
            throw;
        }
    }
    bool empty() override { return !source_.get(); }
    bool serves() const override { return false; }

    Pushed push(const ops::DigestedFile& file) override {
        ProgressBar bar("Storing", context_, quiet_);
        ops::Imported imported =
            ops::import_snapshot(source_.make(), file, [&](std::uint64_t at, std::uint64_t all) { bar.show(at, all); });
        Pushed pushed{"sha256:" + imported.hold.digest().hex(), imported.bytes, imported.new_bytes};
        api_.staged().add(std::move(imported.hold), 0);
        return pushed;
    }

    Pulled pull(const std::string& reference, int fd) override {
        const store::StoredSnapshot snapshot(api_.store(), ops::find_snapshot(api_.store(), reference));
        snapshot.export_to(fd);
        return {"sha256:" + snapshot.digest().hex(), snapshot.size()};
    }

    void stream(const std::string&, const std::function<bool(std::string_view)>&) override { no_daemon(); }
    Raw raw(const std::string&, const std::string&, const Headers&, const std::string&) override { no_daemon(); }
    std::string shown() const override { return source_.path().string(); }

private:
    [[noreturn]] void no_daemon() const {
        throw tinykvm::UserError(
            tinykvm::ExitCode::unreachable,
            fmt::format("no daemon serves {}: start one with kvmserver serve, or name another with --remote",
                        source_.path().string()));
    }

    const bool quiet_;
    Context& context_;
    LazyStore source_;
    admin::Api api_;
    std::optional<TimeLimit> limit_;
};

} // namespace

std::unique_ptr<Connection> connect_here(const Invocation& invocation, Context& context) {
    return std::make_unique<Here>(invocation, context);
}

} // namespace kvmserver::cli::platform
