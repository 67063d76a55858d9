#include "src/cli/dev/events.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::dev {
namespace {

int milliseconds_until(Clock::time_point end) {
    if (end == Clock::time_point::max())
        return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

} // namespace

Events::Events(std::ostream& out) : out_(out) {
    sigset_t ours;
    sigemptyset(&ours);
    for (const int signal : {SIGINT, SIGTERM})
        sigaddset(&ours, signal);
    struct sigaction hangup {};
    if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) // ignored under nohup
        sigaddset(&ours, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &ours, &before_);
    signals_ = tinykvm::UniqueFd(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_)
        tinykvm::throw_errno("signalfd");
}

Events::~Events() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::shared_ptr<Task> Events::start(const std::vector<std::string>& argv, const std::string& folder,
                                    Process::Stdout where, std::vector<int> keep,
                                    std::function<bool(const std::string&)> line) {
    // NOLINTNEXTLINE(modernize-make-shared): an aggregate that cannot be moved
    auto task = std::shared_ptr<Task>(new Task{{argv, folder, where, std::move(keep)}, std::move(line)});
    tasks_.push_back(task);
    return task;
}

void Events::read_signals() {
    signalfd_siginfo signal;
    if (::read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal))
        throw Stopped{};
}

void Events::show(const std::string& text) {
    out_ << text;
    out_.flush();
}

void Events::read_output(Task& task) {
    char buffer[65536];
    const ssize_t count = ::read(task.process.out(), buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count > 0)
        task.rest.append(buffer, static_cast<std::size_t>(count));
    std::size_t from = 0;
    for (auto end = task.rest.find('\n'); end != task.rest.npos; end = task.rest.find('\n', from)) {
        const std::string line = task.rest.substr(from, end - from);
        if (!task.line || !task.line(line))
            show(line + '\n');
        from = end + 1;
    }
    task.rest.erase(0, from);
    constexpr std::size_t kLongest = 1 << 20;
    if (count > 0 && task.rest.size() < kLongest)
        return;
    show(task.rest); // at the end, or for a very long line
    task.rest.clear();
    if (count <= 0)
        task.process.out_ended();
}

void Events::step(Clock::time_point end) {
    std::erase_if(tasks_, [](const std::weak_ptr<Task>& task) { return task.expired(); });
    std::vector<pollfd> wanted{{signals_.get(), POLLIN, 0}, {watch_ ? watch_->fd() : -1, POLLIN, 0}};
    std::vector<std::shared_ptr<Task>> tasks;
    for (const auto& each : tasks_) {
        tasks.push_back(each.lock());
        wanted.push_back({tasks.back()->process.out(), POLLIN, 0});
        wanted.push_back({tasks.back()->process.poll() ? -1 : tasks.back()->process.exited(), POLLIN, 0});
    }
    if (::poll(wanted.data(), wanted.size(), milliseconds_until(end)) < 0) {
        if (errno == EINTR)
            return;
        tinykvm::throw_errno("poll");
    }
    if (wanted[0].revents)
        read_signals();
    if (wanted[1].revents) {
        completed_ = watch_->clear();
        changed_ = true;
        changed_at_ = Clock::now();
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (wanted[2 + 2 * i].revents)
            read_output(*tasks[i]);
        if (wanted[3 + 2 * i].revents)
            tasks[i]->process.poll();
    }
}

int Events::wait(Task& task) {
    while (!task.process.poll() || task.process.out() >= 0)
        step();
    return *task.process.poll();
}

} // namespace kvmserver::cli::dev
