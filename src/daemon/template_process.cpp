#include "src/daemon/template_process.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "src/daemon/function_words.hpp"
#include "src/protocol/worker_messages.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

// All processes of a template have the same addresses in memory. Who has found them out in one of them shall not know
// those of all others.
constexpr unsigned kMostForks = 200;
// It has nothing else to do; the host may be very busy.
constexpr int kAnswerMs = 20'000;

#ifdef KVMSERVER_SANITIZED
constexpr bool kCanFork = false; // the sanitizers' own state does not survive a clone() that they do not know of
#else
constexpr bool kCanFork = true;
#endif

void wait_for(pid_t pid) {
    while (pid > 0 && ::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

} // namespace

TemplateProcess::~TemplateProcess() { end(); }

void TemplateProcess::start() {
    auto [ours, theirs] = protocol::make_pair();
    jail::Program program = function_words(kFunctionTemplate, mode_);
    program.given = {{theirs.get(), kFunctionControl}};
    program.own_namespaces = false;
    process_ = jail::spawn(program, mode_);
    control_ = std::move(ours);
    forks_ = 0;
}

void TemplateProcess::end() {
    control_.reset();
    if (process_.pid > 0)
        ::kill(process_.pid, SIGKILL);
    wait_for(process_.pid);
    process_ = {};
}

TemplateProcess::Asked TemplateProcess::ask(const ForkWanted& wanted, jail::Spawned& spawned) {
    protocol::Message message;
    message.kind = protocol::Kind::fork;
    message.state_bytes = wanted.ahead_bytes;
    std::vector<int> files{wanted.out, wanted.err, wanted.control};
    if (wanted.group >= 0)
        files.push_back(wanted.group);
    if (!protocol::send_files(control_.get(), message, files))
        return Asked::never;
    pollfd answered{control_.get(), POLLIN, 0};
    int polled;
    do
        polled = ::poll(&answered, 1, kAnswerMs);
    while (polled < 0 && errno == EINTR);
    auto received = polled > 0 ? protocol::receive(control_.get(), protocol::Wait::no) : std::nullopt;
    if (!received || received->message.kind != protocol::Kind::fork)
        return Asked::lost;
    const auto pid = static_cast<pid_t>(received->message.left);
    if (received->message.state_bytes != 0) { // it could not fork, or the child has ended again
        wait_for(pid);
        return Asked::answered;
    }
    if (!received->fd) { // we have no descriptor left, and cannot look after the process without it
        ::kill(pid, SIGKILL);
        wait_for(pid);
        return Asked::answered;
    }
    spawned = {pid, std::move(received->fd)};
    return Asked::answered;
}

jail::Spawned TemplateProcess::fork(const ForkWanted& wanted) {
    const std::lock_guard lock(mutex_);
    jail::Spawned spawned;
    if (!kCanFork || useless_)
        return spawned;
    try {
        if (process_.pid > 0 && forks_ >= kMostForks)
            end();
        // The one that there is may have been killed, for example for lack of memory.
        for (int tries = 0; tries < 2; ++tries) {
            if (process_.pid <= 0)
                start();
            const Asked asked = ask(wanted, spawned);
            if (asked == Asked::answered) {
                ++forks_;
                return spawned;
            }
            useless_ = forks_ == 0; // one that cannot even begin will not work later
            end();
            if (useless_ || asked == Asked::lost)
                break;
        }
    } catch (const std::exception&) { // no descriptors or memory left
        end();
    }
    return spawned;
}

} // namespace kvmserver::daemon
