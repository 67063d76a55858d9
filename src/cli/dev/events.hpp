// What `dev` waits for: signals, changed files, output of its processes, and their ends.
#pragma once
#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "src/cli/dev/process.hpp"
#include "src/cli/dev/watch.hpp"

namespace kvmserver::cli::dev {

using Clock = std::chrono::steady_clock;

// Thrown on SIGINT, SIGTERM or SIGHUP: everything must end.
struct Stopped {};

// A process, and a handler for its lines on stdout.
struct Task {
    Process process;
    std::function<bool(const std::string&)> line; // returns true to keep the line from being shown
    std::string rest = {};                        // an incomplete line
};

class Events {
public:
    explicit Events(std::ostream& out);
    ~Events();
    Events(const Events&) = delete;
    Events& operator=(const Events&) = delete;

    // `watch` must outlive this object; null: none.
    void set_watch(Watch* watch) { watch_ = watch; }
    std::shared_ptr<Task> start(const std::vector<std::string>& argv, const std::string& folder, Process::Stdout where,
                                std::vector<int> keep = {}, std::function<bool(const std::string&)> line = nullptr);

    // Waits for an event until `end` and handles it. Throws Stopped.
    void step(Clock::time_point end = Clock::time_point::max());
    // Waits until it has ended and all its output is shown. Returns its status.
    int wait(Task& task);
    // When a watched folder last had an event, and whether that completed a file. taken() resets changed().
    bool changed() const { return changed_; }
    Clock::time_point changed_at() const { return changed_at_; }
    bool completed() const { return completed_; }
    void taken() { changed_ = false; }

private:
    void read_signals();
    void read_output(Task& task);
    void show(const std::string& text);

    std::ostream& out_;
    tinykvm::UniqueFd signals_;
    sigset_t before_{};
    Watch* watch_ = nullptr;
    std::vector<std::weak_ptr<Task>> tasks_;
    bool changed_ = false, completed_ = false;
    Clock::time_point changed_at_;
};

} // namespace kvmserver::cli::dev
