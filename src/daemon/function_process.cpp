#include "src/daemon/function_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <tuple>
#include <vector>

#include "src/daemon/cache_service.hpp"
#include "src/daemon/function_words.hpp"
#include "src/daemon/open_files.hpp"
#include "src/daemon/process_messages.hpp"
#include "src/daemon/template_process.hpp"
#include "src/jail/spawn.hpp"
#include "src/protocol/worker_messages.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/same_file.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

struct Pipe {
    UniqueFd ours, theirs;
    Pipe() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) < 0)
            throw_errno("pipe");
        ours = UniqueFd(ends[0]);
        theirs = UniqueFd(ends[1]);
        ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
    }
};

} // namespace

FunctionProcess::FunctionProcess(std::uint64_t ahead_bytes, jail::Mode mode, ControlGroups* groups,
                                 TemplateProcess* parent)
    : FunctionProcess("/proc/self/exe", mode, groups, ahead_bytes, {}, parent) {}

std::unique_ptr<FunctionProcess> FunctionProcess::for_trial(const std::string& executable, jail::Mode mode,
                                                            ControlGroups* groups) {
    raise_open_files(); // the caller may be a command, where nothing else has raised the limit
    return std::unique_ptr<FunctionProcess>(new FunctionProcess(executable, mode, groups, 0, {"with-parent"}, nullptr));
}

FunctionProcess::FunctionProcess(const std::string& executable, jail::Mode mode, ControlGroups* groups,
                                 std::uint64_t ahead_bytes, const std::vector<std::string>& more,
                                 TemplateProcess* parent)
    : group_(groups ? groups->make() : nullptr) {
    Pipe out, err;
    auto [ours, theirs] = protocol::make_pair();
    const int group = group_ ? group_->processes_fd() : -1;
    jail::Spawned spawned;
    if (parent)
        spawned = parent->fork({out.theirs.get(), err.theirs.get(), theirs.get(), group, ahead_bytes});
    if (spawned.pid <= 0) {
        if (parent) { // TemplateProcess::fork() says why
            out = Pipe();
            err = Pipe();
            std::tie(ours, theirs) = protocol::make_pair();
        }
        jail::Program program = function_words(kFunctionProcess, mode, executable);
        program.words.push_back(std::to_string(ahead_bytes));
        program.words.insert(program.words.end(), more.begin(), more.end());
        program.given = {
            {out.theirs.get(), STDOUT_FILENO}, {err.theirs.get(), STDERR_FILENO}, {theirs.get(), kFunctionControl}};
        program.group = group;
        spawned = jail::spawn(program, mode);
    }
    pid_ = spawned.pid;
    pid_fd_ = std::move(spawned.pid_fd);
    control_ = std::move(ours);
    output_ = std::move(out.ours);
    errors_ = std::move(err.ours);
}

std::optional<std::string> FunctionProcess::missing_walls() {
    send_text(control_.get(), protocol::Kind::jail, jail::to_text({}));
    send_text(control_.get(), protocol::Kind::walls, "");
    constexpr std::size_t kMaxBytes = 1 << 16;
    return receive_text(control_.get(), protocol::Kind::described, kMaxBytes, std::chrono::seconds(3));
}

void FunctionProcess::assign(const FunctionProgram& program, CacheService& cache) {
    require_open_files(program.name, *program.snapshot);
    if (group_)
        group_->limit(program.limits);
    send_text(control_.get(), protocol::Kind::jail, program.jail);
    const ComesLater later = program.later ? program.later->pieces : ComesLater();
    for (const std::string& text :
         {program.name + "\n" + program.after_restore + "\n" +
              (program.suspends            ? std::string(protocol::kSuspends)
               : program.kept              ? std::string(protocol::kKept)
               : program.rest_after_ms > 0 ? fmt::format("{}{}\n", protocol::kRests, program.rest_after_ms)
                                           : ""),
          list_of(*program.snapshot, later), program.values, program.environment,
          (program.report_excess ? std::string(1, protocol::kReportExcess) : "") + program.ceilings})
        send_text(control_.get(), protocol::Kind::assign, text);
    send_pieces(control_.get(), *program.snapshot, later, program.later ? program.later->link.get() : -1);
    // Each chunk is a piece, and a large page consists of chunks.
    const std::uint64_t max_bytes = program.snapshot->pieces().size() * PageCache::kMaxCopyBytes;
    const UniqueFd socket = cache.connect({program.name, program.tenant, program.snapshot->digest(), max_bytes});
    protocol::Message message;
    message.kind = protocol::Kind::cache;
    message.more_follows = program.storage >= 0;
    if (!protocol::send(control_.get(), message, socket.get()))
        throw_errno("give a process its way to the cache");
    message = {};
    message.kind = protocol::Kind::storage;
    if (program.storage >= 0 && !protocol::send(control_.get(), message, program.storage))
        throw_errno("give a process its way to its storage");
    if (!program.suspends)
        return;
    message.kind = protocol::Kind::state;
    message.state_bytes = program.state_bytes;
    message.more_follows = program.state_grows;
    if (!protocol::send(control_.get(), message, program.state))
        throw_errno("give a process the state of its machine");
}

bool FunctionProcess::state_grew(std::uint64_t bytes, bool more) {
    protocol::Message message;
    message.kind = protocol::Kind::state;
    message.state_bytes = bytes;
    message.more_follows = more;
    return protocol::send(control_.get(), message);
}

bool FunctionProcess::keep_file(int file, bool of_checkpoint) {
    if (std::ranges::any_of(files_, [&](const GivenFile& kept) { return same_file(kept.file.get(), file); }))
        return true;
    UniqueFd kept(::fcntl(file, F_DUPFD_CLOEXEC, 0));
    if (!kept)
        return false;
    constexpr std::size_t kMost = 16; // a save that fails is tried again and again
    if (files_.size() == kMost)
        files_.erase(files_.begin());
    files_.push_back({std::move(kept), of_checkpoint});
    return true;
}

bool FunctionProcess::limit_files(std::uint64_t most) {
    constexpr std::uint64_t kBlock = 512; // st_blocks, stat(2)
    bool too_much = false;
    for (const auto& [file, of_checkpoint] : files_) {
        struct stat info {};
        if (::fstat(file.get(), &info) != 0)
            continue;
        const auto size = static_cast<std::uint64_t>(info.st_size);
        if (std::max(size, static_cast<std::uint64_t>(info.st_blocks) * kBlock) <= most)
            continue;
        too_much = true;
        kill();
        // Also when the size stays the same this frees what lies behind it: fallocate(2), FALLOC_FL_KEEP_SIZE.
        (void)!::ftruncate(file.get(), static_cast<off_t>(std::min(size, most)));
    }
    return too_much;
}

void FunctionProcess::empty_earlier_files() {
    for (std::size_t i = 0; i + 1 < files_.size(); ++i)
        if (!files_[i].of_checkpoint)
            (void)!::ftruncate(files_[i].file.get(), 0);
}

bool FunctionProcess::suspend(int file) {
    protocol::Message message;
    message.kind = protocol::Kind::suspend;
    return keep_file(file, false) && protocol::send(control_.get(), message, file);
}

bool FunctionProcess::checkpoint(int file, int done) {
    protocol::Message message;
    message.kind = protocol::Kind::checkpoint;
    return keep_file(file, true) && protocol::send(control_.get(), message, file) &&
           protocol::send(control_.get(), message, done);
}

bool FunctionProcess::running() const {
    pollfd ended{pid_fd_.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) == 0;
}

FunctionProcess::~FunctionProcess() {
    kill();
    reap();
}

void FunctionProcess::kill() {
    if (pid_ > 0)
        ::kill(pid_, SIGKILL);
}

std::string FunctionProcess::reap() {
    if (pid_ <= 0)
        return "is gone";
    int status = 0;
    pid_t got;
    do
        got = ::waitpid(pid_, &status, 0);
    while (got < 0 && errno == EINTR);
    pid_ = -1;
    if (got < 0)
        return "is gone";
    if (WIFSIGNALED(status) && group_ && group_->ran_out_of_memory())
        return fmt::format(
            "was ended by the kernel: all of it needs more than the {} MiB that it may have (docs/SERVE.md)",
            group_->memory_limit() >> 20);
    return WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                               : fmt::format("exited with status {}", WEXITSTATUS(status));
}

} // namespace kvmserver::daemon
