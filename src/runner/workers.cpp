#include "src/runner/workers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <thread>
#include <vector>

#include "src/runner/arrivals.hpp"
#include "src/runner/http_mode.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

class Worker {
public:
    Worker(const Setup& setup, const Options& options, std::shared_ptr<const MachineImage> image, ArrivalSource& arrivals,
           WorkerStats& stats, const Stopper& stop)
        : setup_(setup), options_(options), image_(std::move(image)), arrivals_(arrivals), stats_(stats),
          driver_(*setup.listeners, note_line, stop) {}

    void prepare() {
        const ResetStrategy strategy = uses_dirty_bits(setup_, options_) ? ResetStrategy::dirty_bits : ResetStrategy::working_set;
        machine_ = Machine::clone(setup_.env, image_, driver_, strategy);
    }

    // True until the server is to stop.
    bool serve_one() {
        Arrival client;
        if (!arrivals_.next(client))
            return false;
        const std::uint64_t exits = machine_->exits();
        fate_ = client.fate;
        if (!driver_.attach(*machine_, std::move(client)))
            throw HostError(ENOSPC, "connection slot of a clean machine");
        Driver::Until until;
        until.one_connection = true;
        until.idle_limit_ns = static_cast<std::uint64_t>(setup_.env.limits.request_seconds * 1e9);
        const DriveEnd end = driver_.drive(*machine_, until);
        finish(end);
        stats_.connections.fetch_add(1, std::memory_order_relaxed);
        stats_.exits.fetch_add(machine_->exits() - exits, std::memory_order_relaxed);
        if (end == DriveEnd::requested)
            return false;
        clean();
        return true;
    }

    void add_reasons() {
        const std::lock_guard lock(stats_.mutex);
        for (const auto& [reason, count] : machine_->exit_reasons())
            stats_.reasons[reason] += count;
    }
    bool difference_found() const { return difference_; }

private:
    void tell(Fate fate) {
        if (fate_)
            fate_->store(fate, std::memory_order_release);
        fate_.reset();
    }

    // What became of the request is told before its connection is closed.
    void finish(DriveEnd end) {
        const std::string name = program_name(setup_.program);
        if (end == DriveEnd::stopped) {
            const Stop& stop = driver_.stop();
            stats_.failures.fetch_add(1, std::memory_order_relaxed);
            if (stop.kind == StopKind::exited)
                note_line(fmt::format("{}: exited with status {} during a request; the connection is closed, the machine reset", name,
                                      stop.status));
            else if (stop.kind == StopKind::no_memory)
                note_line(fmt::format("{}: a request took more than --max-request-memory; the connection is closed, the machine reset", name));
            else
                report_stop(name, stop);
            tell(stop.kind == StopKind::no_memory ? Fate::out_of_memory : Fate::program_failed);
            driver_.drop_connections(false);
        } else if (end == DriveEnd::timeout) {
            stats_.failures.fetch_add(1, std::memory_order_relaxed);
            note_line(fmt::format("{}: a request made no progress for {:.4g} s (--max-request-time); the connection is closed, the machine "
                                  "reset",
                                  name, setup_.env.limits.request_seconds));
            tell(Fate::timed_out);
            driver_.drop_connections(true);
        } else if (end == DriveEnd::requested) {
            tell(Fate::stopped);
            driver_.drop_connections(false);
        }
    }

    void clean() {
        const std::uint64_t begin = host_mono_ns();
        const ResetStats done = machine_->reset();
        stats_.reset_ns.fetch_add(host_mono_ns() - begin, std::memory_order_relaxed);
        stats_.pages_copied.fetch_add(done.pages_copied, std::memory_order_relaxed);
        stats_.pages_dropped.fetch_add(done.pages_dropped, std::memory_order_relaxed);
        if (options_.check_reset) {
            const std::string difference = machine_->compare_with_image();
            if (!difference.empty()) {
                note_line("reset differs: " + difference);
                difference_ = true;
            }
        }
        machine_->prepare();
    }

    const Setup& setup_;
    const Options& options_;
    std::shared_ptr<const MachineImage> image_;
    ArrivalSource& arrivals_;
    WorkerStats& stats_;
    Driver driver_;
    std::unique_ptr<Machine> machine_;
    std::shared_ptr<std::atomic<Fate>> fate_;
    bool difference_ = false;
};

// A machine that keeps its state: serves many connections until the program ends.
int serve_persistent(const Setup& setup, std::shared_ptr<const MachineImage> image) {
    Driver driver(*setup.listeners, note_line);
    MachineEnv env = setup.env;
    env.limits.request_memory = env.limits.memory;
    const auto machine = Machine::clone(env, std::move(image), driver, ResetStrategy::working_set);
    Driver::Until until;
    until.accepting = true;
    const DriveEnd end = driver.drive(*machine, until);
    if (end == DriveEnd::requested)
        return 0;
    return report_stop(program_name(setup.program), driver.stop());
}

} // namespace

bool uses_dirty_bits(const Setup& setup, const Options& options) {
    if (options.reset == "dirty-bits" && !setup.env.kind.dirty_bits)
        throw UserError(ExitCode::usage, "--reset=dirty-bits: this KVM host does not set dirty bits anew (shadow paging); use working-set");
    return options.reset == "dirty-bits" || (options.reset != "working-set" && setup.env.kind.dirty_bits);
}

void print_stats(WorkerStats& s) {
    const double n = std::max<double>(1, static_cast<double>(s.connections.load()));
    note_line(fmt::format("{} connections, {} failed; per connection: {:.2f} exits, {:.1f} pages copied back, {:.1f} dropped, reset {:.1f} us",
                          s.connections.load(), s.failures.load(), static_cast<double>(s.exits.load()) / n,
                          static_cast<double>(s.pages_copied.load()) / n, static_cast<double>(s.pages_dropped.load()) / n,
                          static_cast<double>(s.reset_ns.load()) / n / 1000));
    const std::lock_guard lock(s.mutex);
    std::string line;
    for (const auto& [reason, count] : s.reasons)
        line += fmt::format("{}{} {:.2f}", line.empty() ? "" : ", ", Machine::reason_name(reason), static_cast<double>(count) / n);
    if (!line.empty())
        note_line("exits per connection: " + line);
}

static void join(std::vector<std::thread>& threads) {
    for (std::thread& t : threads)
        t.join();
    threads.clear();
}

int serve(const Setup& setup, const Options& options, std::shared_ptr<const MachineImage> image) {
    WorkerStats stats;
    std::atomic<int> code{0};
    std::vector<std::thread> threads;
    const unsigned count = std::max(1u, options.threads);
    const auto guard = [&](auto&& body) {
        try {
            body();
        } catch (const UserError& error) { // a part of the snapshot that is read late may be altered
            note_line(error.what());
            code = static_cast<int>(error.code());
            StopSignal::instance().request();
        } catch (const std::exception& error) {
            note_line(error.what());
            code = 1;
            StopSignal::instance().request();
        }
    };
    if (!options.ephemeral) {
        for (unsigned i = 0; i < count; ++i)
            threads.emplace_back([&] {
                guard([&] {
                    if (const int result = serve_persistent(setup, image); result != 0)
                        code = result;
                    StopSignal::instance().request(); // one that ends ends all, like the threads of one process
                });
            });
    } else {
        const auto work = [&](ArrivalSource& arrivals, const Stopper& stop) {
            for (unsigned i = 0; i < count; ++i)
                threads.emplace_back([&] {
                    guard([&] {
                        Worker worker(setup, options, image, arrivals, stats, stop);
                        worker.prepare();
                        while (worker.serve_one()) {
                        }
                        worker.add_reasons();
                        if (worker.difference_found())
                            code = 1;
                    });
                });
        };
        if (options.http) {
            HttpMode http(setup, options);
            work(http, http.hard_stop());
            http.serve(); // until the signal, and until what was in flight then is answered
            join(threads);
        } else {
            Arrivals arrivals(*setup.listeners);
            work(arrivals, StopSignal::instance());
            join(threads);
        }
    }
    join(threads);
    if (options.stats)
        print_stats(stats);
    return code;
}

} // namespace kvmserver
