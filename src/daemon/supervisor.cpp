#include "src/daemon/supervisor.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr int kLookMs = 1000; // for functions that have become idle
constexpr std::size_t kLongestLine = 8192;

std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

UniqueFd connect_to(const std::filesystem::path& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), std::min(path.native().size(), sizeof(address.sun_path) - 1));
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd && ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0)
        fd.reset();
    return fd;
}

} // namespace

Supervisor::Supervisor(std::filesystem::path folder, std::function<void(const std::string&)> log)
    : folder_(std::move(folder)), log_(std::move(log)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_)
        throw_errno("eventfd");
    thread_ = std::thread([this] { loop(); });
}

Supervisor::~Supervisor() {
    ending_ = true;
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
    thread_.join();
}

UniqueFd Supervisor::connect(const std::shared_ptr<Target>& target) {
    target->last_used_ns = now_ns();
    std::filesystem::path socket;
    {
        const std::lock_guard lock(mutex_);
        if (target->socket_.empty())
            start(target);
        socket = target->socket_;
    }
    if (socket.empty()) {
        errno = ECHILD;
        return {};
    }
    return connect_to(socket);
}

// With the mutex held.
void Supervisor::start(const std::shared_ptr<Target>& target) {
    const Target::Facts& facts = target->facts();
    try {
        // Never a name again: the process before it may be on its way out.
        const auto socket = folder_ / fmt::format("{}.sock", ++started_);
        running_.push_back({target, std::make_unique<FunctionProcess>(facts.name, socket, facts.snapshot, facts.machines), {}, false});
        count_ = running_.size();
        target->socket_ = socket;
        const std::uint64_t one = 1;
        (void)!::write(wake_.get(), &one, sizeof(one)); // the loop watches it from now on
    } catch (const std::exception& error) {
        log_(fmt::format("{}: {}", facts.name, error.what()));
    }
}

void Supervisor::read_output(Running& running) {
    char buffer[4096];
    for (ssize_t n; (n = ::read(running.process->output_fd(), buffer, sizeof(buffer))) > 0;) {
        running.line.append(buffer, static_cast<std::size_t>(n));
        for (std::size_t end; (end = running.line.find('\n')) != std::string::npos || running.line.size() > kLongestLine;) {
            const std::size_t taken = std::min(end, kLongestLine);
            log_(fmt::format("[{}] {}", running.target->facts().name, running.line.substr(0, taken)));
            running.line.erase(0, end == taken ? taken + 1 : taken);
        }
    }
}

// With the mutex held.
void Supervisor::stop_idle() {
    const std::uint64_t now = now_ns();
    for (Running& running : running_) {
        Target& target = *running.target;
        if (running.stopping || target.in_flight != 0 || now < target.last_used_ns + target.facts().idle_ns)
            continue;
        // No new connection goes to its socket: the next request starts another process.
        target.socket_.clear();
        running.stopping = true;
        running.process->stop();
        log_(fmt::format("{}: idle, its process ends", target.facts().name));
    }
}

void Supervisor::loop() {
    bool told = false;
    for (;;) {
        std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
        {
            const std::lock_guard lock(mutex_);
            if (ending_ && !told) {
                for (Running& running : running_)
                    running.process->stop();
                told = true;
            }
            if (ending_ && running_.empty())
                return;
            for (const Running& running : running_) {
                fds.push_back({running.process->output_fd(), POLLIN, 0});
                fds.push_back({running.process->pid_fd(), POLLIN, 0});
            }
        }
        if (::poll(fds.data(), fds.size(), kLookMs) < 0 && errno != EINTR)
            throw_errno("poll");
        std::uint64_t woken;
        (void)!::read(wake_.get(), &woken, sizeof(woken));
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < running_.size() && 2 * i + 2 < fds.size(); ++i) {
            Running& running = running_[i];
            if (fds[2 * i + 1].revents)
                read_output(running);
            if (!fds[2 * i + 2].revents)
                continue;
            read_output(running);
            const std::string end = running.process->reap();
            if (!running.stopping && !ending_) {
                running.target->socket_.clear();
                log_(fmt::format("{}: its process {}; the next request starts another", running.target->facts().name, end));
            }
            running.process.reset(); // with its socket: who waits there is told
        }
        std::erase_if(running_, [](const Running& running) { return !running.process; });
        count_ = running_.size();
        if (!ending_)
            stop_idle();
    }
}

} // namespace kvmserver::daemon
