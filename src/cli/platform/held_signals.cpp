#include "src/cli/platform/held_signals.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::platform {

HeldSignals::HeldSignals() {
    sigset_t held;
    ::sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        struct sigaction now {};
        if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
            ::sigaddset(&held, signal);
    }
    signals_ = tinykvm::UniqueFd(::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_)
        tinykvm::throw_errno("signalfd");
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
}

HeldSignals::~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void HeldSignals::wait_readable(int fd) const {
    for (;;) {
        pollfd wanted[] = {{signals_.get(), POLLIN, 0}, {fd, POLLIN, 0}};
        if (::poll(wanted, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            tinykvm::throw_errno("poll");
        }
        signalfd_siginfo info;
        if (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
            throw Interrupted{static_cast<int>(info.ssi_signo)};
        if (wanted[1].revents != 0)
            return;
    }
}

} // namespace kvmserver::cli::platform
