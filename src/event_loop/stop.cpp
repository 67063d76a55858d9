#include "src/event_loop/stop.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "tinykvm/base/error.hpp"

namespace kvmserver {
namespace {

StopSignal* signalled = nullptr;
void on_stop(int) { signalled->request(); }

} // namespace

Stopper::Stopper() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_)
        tinykvm::throw_errno("eventfd");
}

void Stopper::request() {
    const int saved = errno;
    requested_.store(true, std::memory_order_relaxed);
    const std::uint64_t one = 1;
    (void)!::write(fd_.get(), &one, sizeof(one));
    errno = saved;
}

void Stopper::clear() {
    std::uint64_t count;
    (void)!::read(fd_.get(), &count, sizeof(count));
    requested_.store(false, std::memory_order_relaxed);
}

StopSignal::StopSignal() {
    signalled = this;
    struct sigaction action {};
    action.sa_handler = on_stop;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGTERM, &action, nullptr);
    ::sigaction(SIGINT, &action, nullptr);
}

StopSignal& StopSignal::instance() {
    static StopSignal signal;
    return signal;
}

} // namespace kvmserver
