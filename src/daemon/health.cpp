#include "src/daemon/health.hpp"

#include <fmt/format.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "src/daemon/cache_service.hpp"
#include "src/daemon/control.hpp"
#include "src/daemon/function_process.hpp"
#include "src/daemon/passed_trials.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/stream_pair.hpp"

namespace kvmserver::daemon {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using tinykvm::UniqueFd;

constexpr auto kLimit = 30s; // to restore and answer
constexpr std::size_t kMaxOutput = 1 << 16, kMaxHead = 1 << 16;
constexpr std::string_view kOurs = "kvmserver: ";

// Why the version is not healthy.
class Sick : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class Probe {
public:
    // `plan` of its jail, `limits` of its control group.
    Probe(const Candidate& candidate, std::string plan, GroupLimits limits)
        : plan_(std::move(plan)), limits_(limits), cache_(FolderCache(default_cache_folder())),
          control_(candidate.control) {
        if (control_)
            use(control_->take_spare());
        if (!process_)
            use_new(candidate);
    }
    ~Probe() {
        if (control_)
            control_->discard(std::move(process_));
    }
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

    void check(const Candidate& candidate, const store::StoredSnapshot& snapshot) {
        start(candidate, {candidate.name, candidate.function, &snapshot, candidate.after_restore, candidate.values.body,
                          candidate.values.environment, candidate.ceilings, false, plan_, limits_, candidate.tenant});
        wait_for(channel_.get(),
                 candidate.after_restore.empty()
                     ? "it was not restored"
                     : fmt::format("the after-restore hook: POST {}: not restored", candidate.after_restore));
        if (const auto said = protocol::receive(channel_.get(), protocol::Wait::no);
            !said || said->message.kind != protocol::Kind::ready)
            ended();
        if (!candidate.health.empty())
            ask(candidate.health);
    }

    // What it has printed so far.
    std::string output() const { return output_.substr(output_.size() - std::min(output_.size(), kMaxOutput)); }

private:
    void use(std::unique_ptr<FunctionProcess> process) {
        process_ = std::move(process);
        out_ = Stream(process_ ? process_->output_fd() : -1);
        errors_ = Stream(process_ ? process_->errors_fd() : -1);
    }

    void use_new(const Candidate& candidate) {
        use(FunctionProcess::for_trial(candidate.executable, candidate.jail.mode, candidate.jail.groups.get()));
    }

    void start(const Candidate& candidate, const FunctionProgram& program) {
        auto [ours, theirs] = protocol::make_pair();
        bool started = takes(program, theirs.get());
        if (!started && control_) { // the spare process was killed just now
            use_new(candidate);
            started = takes(program, theirs.get());
        }
        if (!started)
            ended();
        channel_ = std::move(ours);
    }

    // Whether the process was there to take it.
    bool takes(const FunctionProgram& program, int channel) {
        protocol::Message message;
        message.kind = protocol::Kind::add_machine;
        try {
            process_->assign(program, cache_);
            return protocol::send(process_->control_fd(), message, channel);
        } catch (const tinykvm::HostError& error) {
            if (error.code().value() != EPIPE && error.code().value() != ECONNRESET)
                throw;
            return false;
        }
    }

    void ask(const std::string& path) {
        auto [ours, theirs] = tinykvm::stream_pair();
        if (!ours)
            tinykvm::throw_errno("socketpair");
        protocol::Message request;
        request.kind = protocol::Kind::request;
        const std::string head = fmt::format(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kvmserver-health\r\nConnection: close\r\n\r\n", path);
        if (!protocol::send(channel_.get(), request, theirs.get()))
            ended();
        // Fits the buffer of a new socket.
        if (::send(ours.get(), head.data(), head.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(head.size()))
            throw Sick(fmt::format("GET {}: it takes no request", path));
        theirs.reset();
        // Read the status of the first final (not 1xx) response ("HTTP/1.1 200 OK").
        std::string answer;
        for (char buffer[4096];;) {
            wait_for(ours.get(), fmt::format("GET {}: no answer", path));
            const ssize_t count = ::recv(ours.get(), buffer, sizeof buffer, 0);
            if (count < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            if (count <= 0) {
                let_it_say_why();
                throw Sick(fmt::format("GET {}: the connection ended without an answer", path));
            }
            answer.append(buffer, static_cast<std::size_t>(count));
            while (answer.size() >= 12 && answer.starts_with("HTTP/1.") && answer[9] == '1') {
                const auto over = answer.find("\r\n\r\n");
                if (over == answer.npos)
                    break;
                answer.erase(0, over + 4);
            }
            if (answer.size() >= 12 && answer[9] != '1')
                break;
            if (answer.size() > kMaxHead)
                throw Sick(fmt::format("GET {}: the answer is not HTTP", path));
        }
        const bool digits = answer.find_first_not_of("0123456789", 9) >= 12;
        if (!answer.starts_with("HTTP/1.") || answer[8] != ' ' || !digits)
            throw Sick(fmt::format("GET {}: the answer is not HTTP", path));
        if (answer[9] >= '5')
            throw Sick(fmt::format("GET {}: status {}", path, answer.substr(9, 3)));
    }

    // Reads why the program ended: the process prints that before it is ready for the next request.
    void let_it_say_why() {
        constexpr int kPatienceMs = 1000, kMax = 4; // a process that sends more messages is broken
        pollfd said{channel_.get(), POLLIN, 0};
        for (int n = 0; n<kMax&& ::poll(&said, 1, kPatienceMs)> 0; ++n) {
            const auto received = protocol::receive(channel_.get(), protocol::Wait::no);
            if (!received || received->message.kind == protocol::Kind::ready)
                break;
        }
        read_output();
    }

    // Waits until `fd` is readable, and reads the output meanwhile.
    void wait_for(int fd, const std::string& what) {
        for (;;) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
            pollfd wanted[4] = {
                {fd, POLLIN, 0}, {out_.fd(), POLLIN, 0}, {errors_.fd(), POLLIN, 0}, {process_->pid_fd(), POLLIN, 0}};
            const int ready = left > 0 ? ::poll(wanted, 4, static_cast<int>(left)) : 0;
            if (ready < 0 && errno != EINTR)
                tinykvm::throw_errno("poll");
            if (ready == 0)
                throw Sick(fmt::format("{} within {} s", what, kLimit.count()));
            if (ready < 0)
                continue;
            read_output();
            if (wanted[0].revents != 0)
                return;
            if (wanted[3].revents != 0)
                ended();
        }
    }

    void read_output() {
        out_.read(output_);
        errors_.read(output_);
        if (output_.size() > 2 * kMaxOutput) // keep the end: it says most
            output_.erase(0, output_.size() - kMaxOutput);
    }

    // The process has given up or is about to end. Its own last line is the reason.
    [[noreturn]] void ended() {
        constexpr int kPatienceMs = 2000; // it only has to exit
        pollfd end{process_->pid_fd(), POLLIN, 0};
        while (::poll(&end, 1, kPatienceMs) < 0 && errno == EINTR) {
        }
        constexpr int kPipes = 16; // enough reads to empty a full pipe
        for (int i = 0; i < kPipes; ++i)
            read_output();
        const std::string how = end.revents != 0 ? process_->reap() : "stopped responding";
        throw Sick(errors_.why().empty() || how.starts_with("was killed") ? "its process " + how : errors_.why());
    }

    // One of its output pipes.
    class Stream {
    public:
        explicit Stream(int fd) : fd_(fd) {}
        int fd() const { return fd_; } // -1 after its end
        // Reads only a part: a program that prints without end must not block us.
        void read(std::string& output) {
            char buffer[4096];
            const ssize_t count = fd_ < 0 ? 0 : ::read(fd_, buffer, sizeof buffer);
            if (count < 0 && (errno == EAGAIN || errno == EINTR))
                return;
            if (count <= 0) {
                fd_ = -1;
                return;
            }
            output.append(buffer, static_cast<std::size_t>(count));
            for (const char c : std::string_view(buffer, static_cast<std::size_t>(count))) {
                if (c != '\n') {
                    if (line_.size() < kMaxLine)
                        line_ += c;
                } else {
                    if (line_.starts_with(kOurs))
                        why_ = line_.substr(kOurs.size());
                    line_.clear();
                }
            }
        }
        // The last line that the process itself printed.
        const std::string& why() const { return why_; }

    private:
        static constexpr std::size_t kMaxLine = 8192;
        int fd_;
        std::string line_, why_;
    };

    const std::string plan_;
    const GroupLimits limits_;
    CacheService cache_;
    Control* const control_; // null: the processes are our own
    std::unique_ptr<FunctionProcess> process_;
    Stream out_{-1}, errors_{-1};
    UniqueFd channel_;
    std::string output_;
    Clock::time_point end_ = Clock::now() + kLimit;
};

// Its name among those that were passed; nothing if the program runs in it, whose answer may change at any time.
std::optional<Digest> repeatable(const Candidate& candidate, const std::string& plan, const GroupLimits& limits) {
    if (!candidate.control || !candidate.after_restore.empty() || !candidate.health.empty())
        return std::nullopt;
    const std::string group = fmt::format("{} {}", limits.memory_bytes, limits.tasks);
    return PassedTrials::name(candidate.snapshot, {candidate.values.body, candidate.values.environment,
                                                   candidate.ceilings, candidate.tenant, plan, group});
}

} // namespace

Unhealthy::Unhealthy(const std::string& why, std::string output)
    : UserError(tinykvm::ExitCode::failure, fmt::format("the new version does not go live: {}", why)),
      output_(std::move(output)) {}

void require_health(store::Store& store, const Candidate& candidate) {
    const store::StoredSnapshot snapshot(store, candidate.snapshot);
    // The trial reads only what it needs. A thread checks all bytes meanwhile. If both fail, the check has the reason.
    auto intact = std::async(std::launch::async, [&] { snapshot.check(*candidate.checked); });
    JailPlans plans(candidate.jail, *candidate.examinations);
    const std::vector<Ceilings> ceilings = ceilings_from_text(candidate.ceilings);
    const std::string plan = plans.plan_for(snapshot, ceilings);
    const GroupLimits limits = plans.limits_for(snapshot, ceilings, 1);
    const std::optional<Digest> trial = repeatable(candidate, plan, limits);
    if (trial && candidate.control->passed_trials().has(*trial))
        return intact.get();
    Probe probe(candidate, plan, limits);
    try {
        probe.check(candidate, snapshot);
        intact.get();
        if (trial)
            candidate.control->passed_trials().note(*trial, candidate.snapshot);
    } catch (const Sick& error) {
        intact.get();
        std::string why = error.what();
        if (!candidate.after_restore.empty() && why.starts_with("the after-restore hook"))
            why += "; it had the values of `kvmserver env` and `kvmserver secret`, and --no-activate keeps a version "
                   "until they are set";
        throw Unhealthy(why, probe.output());
    } catch (...) { // such as a chunk that is missing
        if (intact.valid())
            intact.get();
        throw;
    }
}

} // namespace kvmserver::daemon
