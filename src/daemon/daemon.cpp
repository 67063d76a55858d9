#include "src/daemon/daemon.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "src/daemon/hand_over.hpp"
#include "src/daemon/open_files.hpp"
#include "src/daemon/service.hpp"
#include "tinykvm/base/descriptor_table.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr int kDescriptorsOfDaemon = 4096; // 32 KiB of kernel memory; enough for some 580 functions that are alive
constexpr int kLookMs = 100;               // how soon a deploy by another process is noticed
// Their sum, plus the pool's 5 s for its workers, must stay below TimeoutStopSec of the systemd unit (packaging).
constexpr std::chrono::seconds kDrainPatience{30}, kLastPatience{3};

// `said` is the last error, which is not repeated.
template <class Action>
void try_to(const char* what, std::string& said, const Action& action) {
    try {
        action();
        said.clear();
    } catch (const std::exception& error) {
        if (said != error.what())
            log_line(fmt::format("kvmserver: {}: {}", what, error.what()));
        said = error.what();
    }
}

template <class Action>
void try_to(const char* what, const Action& action) {
    std::string nothing;
    try_to(what, nothing, action);
}

enum class End { asked, handed_over };

// Runs until the daemon is to end.
End run(Service& service, int signals) {
    Successor successor;
    std::vector<pid_t> failed; // successors to be reaped
    std::string said;
    for (;;) {
        pollfd fds[2] = {{signals, POLLIN, 0}, {successor.ready.get(), POLLIN, 0}};
        if (::poll(fds, successor.ready ? 2 : 1, kLookMs) < 0 && errno != EINTR)
            throw_errno("poll");
        signalfd_siginfo signal{};
        while (::read(signals, &signal, sizeof(signal)) == sizeof(signal)) {
            switch (signal.ssi_signo) {
            case SIGHUP: try_to("reload", [&] { service.reload(); }); break;
            case SIGUSR2:
                try_to("hand over", [&] {
                    if (!successor.ready)
                        successor = start_successor(service.listening_fd(), service.tcp_fds());
                });
                break;
            default:
                if (successor.ready) // the successor must not serve either
                    ::kill(successor.pid, SIGTERM);
                return End::asked;
            }
        }
        if (successor.ready && fds[1].revents != 0) {
            if (successor_serves(successor.ready.get()))
                return End::handed_over;
            log_line("kvmserver: hand over: the new daemon ended before it served; this one keeps serving");
            failed.push_back(std::exchange(successor, {}).pid);
        }
        std::erase_if(failed, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
        // If the store is busy or broken for a moment, what is live stays as it is.
        try_to("look at the store", said, [&] { service.refresh(); });
        service.tick();
    }
}

} // namespace

int serve(ServeOptions options) {
    // Before any thread exists, so that all inherit the mask and none is killed by these signals.
    sigset_t ours;
    sigemptyset(&ours);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2})
        sigaddset(&ours, signal);
    ::pthread_sigmask(SIG_BLOCK, &ours, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    const UniqueFd signals(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals)
        throw_errno("signalfd");
    raise_open_files();
    reserve_descriptors(kDescriptorsOfDaemon);
    Inherited inherited = inherited_sockets();
    const auto beside = options.beside;
    UniqueFd listening = inherited.socket ? std::move(inherited.socket) : options.listen();
    Service service(std::move(options), std::move(listening), std::move(inherited.tcp));
    std::unique_ptr<Companion> companion = beside ? beside(service) : nullptr;
    if (companion)
        service.on_reload([&companion] { companion->reload(); });
    service.start();
    const auto functions = service.info().functions;
    fmt::print("Serving {} function{} on {}\n", functions, functions == 1 ? "" : "s", service.address());
    std::fflush(stdout);
    notify_service_manager(fmt::format("READY=1\nMAINPID={}", ::getpid()));
    notify_predecessor(std::move(inherited.ready));
    if (run(service, signals.get()) == End::asked)
        notify_service_manager("STOPPING=1"); // after a hand-over another process is the service and goes on
    if (companion)
        companion->drain();
    service.drain(kDrainPatience);
    service.on_reload({});
    if (companion && !companion->finish(kLastPatience)) {
        log_line("kvmserver: a call of the API that takes too long is cut off");
        std::_Exit(0); // its thread still uses what a proper exit would destroy; function processes end by themselves
    }
    companion.reset();
    return 0;
}

} // namespace kvmserver::daemon
