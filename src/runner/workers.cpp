#include "src/runner/workers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "src/event_loop/event_loop.hpp"
#include "src/runner/announce.hpp"
#include "src/runner/connections/accepted_connections.hpp"
#include "src/runner/http_mode.hpp"
#include "src/runner/request_machine.hpp"
#include "src/setup/huge_pages.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

int serve_persistent(const Setup& setup, const std::shared_ptr<const MachineImage>& image, WorkerStats& stats,
                     Storage* storage) {
    const auto own_storage = storage ? storage->own() : nullptr;
    EventLoop loop(*setup.listeners, note_line);
    MachineEnv env = setup.env;
    env.limits.request_memory = env.limits.memory;
    env.options.time = GuestTime::continues; // the program continues; it is not one invocation
    if (own_storage)
        env.neighbours = own_storage.get();
    const auto machine = Machine::clone(env, image, loop, ResetStrategy::working_set);
    return serve_kept(setup, *machine, loop, stats);
}

} // namespace

int serve_kept(const Setup& setup, Machine& machine, EventLoop& loop, WorkerStats& stats) {
    const std::uint64_t connections = loop.connections_attached(), exits = machine.exits();
    auto reasons = machine.exit_reasons();
    EventLoop::Until until;
    until.accepting = true;
    const LoopEnd end = loop.run(machine, until);
    stats.connections += loop.connections_attached() - connections;
    stats.exits += machine.exits() - exits;
    {
        const std::lock_guard lock(stats.mutex);
        for (const auto& [reason, count] : machine.exit_reasons())
            if (count != reasons[reason])
                stats.reasons[reason] += count - reasons[reason];
    }
    if (end == LoopEnd::requested)
        return 0;
    return report_stop(program_name(setup.program), loop.stop());
}

void print_stats(WorkerStats& s, bool resets) {
    const double n = std::max<double>(1, static_cast<double>(s.connections.load()));
    std::string each = fmt::format("{:.2f} exits", static_cast<double>(s.exits.load()) / n);
    if (resets)
        each +=
            fmt::format(", {:.1f} pages copied back, {:.1f} dropped, reset {:.1f} us",
                        static_cast<double>(s.pages_copied.load()) / n, static_cast<double>(s.pages_dropped.load()) / n,
                        static_cast<double>(s.reset_ns.load()) / n / 1000);
    note_line(
        fmt::format("{} connections, {} failed; per connection: {}", s.connections.load(), s.failures.load(), each));
    const std::lock_guard lock(s.mutex);
    std::string line;
    for (const auto& [reason, count] : s.reasons)
        line += fmt::format("{}{} {:.2f}", line.empty() ? "" : ", ", Machine::reason_name(reason),
                            static_cast<double>(count) / n);
    if (!line.empty())
        note_line("exits per connection: " + line);
}

static void join(std::vector<std::thread>& threads) {
    for (std::thread& t : threads)
        t.join();
    threads.clear();
}

namespace {

// Joins the threads when the scope is left, also by an exception, after asking them to end.
class Joined {
public:
    Joined(std::vector<std::thread>& threads, std::function<void()> ask) : threads_(threads), ask_(std::move(ask)) {}
    Joined(const Joined&) = delete;
    ~Joined() {
        if (threads_.empty())
            return;
        ask_();
        join(threads_);
    }

private:
    std::vector<std::thread>& threads_;
    std::function<void()> ask_;
};

} // namespace

int serve(const Setup& setup, const Options& options, std::shared_ptr<const MachineImage> image, Storage* storage) {
    if (!options.ephemeral)
        tell_arena_unused(setup);
    WorkerStats stats;
    std::atomic<int> code{0};
    std::vector<std::thread> threads;
    const Joined joined(threads, [] { StopSignal::instance().request(); });
    const unsigned count = std::max(1u, options.threads);
    const auto guard = [&](auto&& body) {
        try {
            body();
        } catch (const UserError& error) { // a part of the snapshot that is read later may be damaged
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
                    if (const int result = serve_persistent(setup, image, stats, storage); result != 0)
                        code = result;
                    StopSignal::instance().request(); // if one machine ends, all end
                });
            });
    } else {
        std::once_flag arena_told;
        const auto work = [&](const std::function<ConnectionSource&()>& source_of_machine, const Stopper& stop) {
            for (unsigned i = 0; i < count; ++i)
                threads.emplace_back([&, source = &source_of_machine()] {
                    guard([&] {
                        const auto own_storage = storage ? storage->own() : nullptr;
                        RequestMachine worker(setup, options, image, *source, stats, stop, own_storage.get());
                        worker.prepare();
                        if (const auto pages = worker.arena_pages())
                            std::call_once(arena_told, tell_arena, *pages, options.verbose.general);
                        while (worker.serve_one()) {
                        }
                        worker.add_reasons();
                        if (worker.difference_found())
                            code = 1;
                    });
                });
        };
        if (options.http) {
            HttpMode http(*setup.listeners, setup.env.limits, count);
            const Joined joined_before_it(threads, [&http] { http.end(); });
            work([&]() -> ConnectionSource& { return http.add_machine(); }, http.hard_stop());
            http.serve(StopSignal::instance()); // returns after the signal, when the requests in flight are answered
            if (options.dev) {
                fmt::print("{}\n", kDrained);
                std::fflush(stdout);
            }
            join(threads);
        } else {
            AcceptedConnections accepted(*setup.listeners, image->handles->served(),
                                         options.server_first ? AcceptedConnections::Given::at_once
                                                              : AcceptedConnections::Given::at_first_byte);
            const Joined joined_before_it(threads, [] { StopSignal::instance().request(); });
            work([&]() -> ConnectionSource& { return accepted; }, StopSignal::instance());
            join(threads);
        }
    }
    join(threads);
    if (options.stats)
        print_stats(stats, options.ephemeral);
    return code;
}

} // namespace kvmserver
