#include "src/daemon/function_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "src/daemon/cache_service.hpp"
#include "src/daemon/open_files.hpp"
#include "src/daemon/tenant.hpp"
#include "src/link/machine_link.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/write.hpp"

extern char** environ;

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr int kControl = 3; // in the process
// Becomes the name of what it serves, for `ps`: no longer than this.
constexpr std::size_t kTitleBytes = 96;

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

// dup2 of a descriptor to its own number would leave it close-on-exec, and one could overwrite another that
// is yet to be duplicated: so all are above the numbers of the process first.
UniqueFd above(int fd) {
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kControl + 1));
    if (!copy)
        throw_errno("dup");
    return copy;
}

// As src/snapshot/byte_source.hpp has it.
std::string list_of(const store::StoredSnapshot& snapshot) {
    std::string list;
    for (const store::Piece& piece : snapshot.pieces())
        list += fmt::format("{} {}\n", piece.length, piece.chunk.hex());
    return list;
}

// It has each piece open for as long as it lives, which leaves it few files for all else where a process may
// have few.
void require_open_files(const FunctionProgram& program) {
    constexpr std::uint64_t kOthers = 64; // its machines, and what their programs open
    rlimit limit{};
    const std::uint64_t needed = program.snapshot->pieces().size() + kOthers;
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed)
        throw UserError(ExitCode::failure,
                        fmt::format("{}: its snapshot has {} pieces, and a process may have {} open files "
                                    "here: raise that to {} or more "
                                    "(ulimit -n, LimitNOFILE= in the unit)",
                                    program.name, program.snapshot->pieces().size(), limit.rlim_cur, needed));
}

void send_pieces(int control, const store::StoredSnapshot& snapshot) {
    const std::size_t count = snapshot.pieces().size();
    for (std::size_t first = 0; first < count; first += link::kMostFiles) {
        std::vector<UniqueFd> files;
        std::vector<int> numbers;
        const std::size_t end = std::min(count, first + link::kMostFiles);
        for (std::size_t piece = first; piece < end; ++piece)
            numbers.push_back(files.emplace_back(snapshot.open_piece(piece)).get());
        link::Message message;
        message.kind = link::Kind::pieces;
        message.left = static_cast<std::uint32_t>(count - end);
        if (!link::send_files(control, message, numbers))
            throw_errno("give a process the pieces of its snapshot");
    }
}

} // namespace

FunctionProcess::FunctionProcess(std::uint64_t ahead_bytes) : FunctionProcess("/proc/self/exe", {std::to_string(ahead_bytes)}) {}

FunctionProcess FunctionProcess::for_trial(const std::string& executable) {
    raise_open_files(); // this may be a command, which nobody has raised them for
    return {executable, {"0", "with-parent"}};
}

FunctionProcess::FunctionProcess(const std::string& executable, const std::vector<std::string>& more) {
    Pipe out, err;
    auto [ours, theirs] = link::make_pair();
    std::string title = "spare";
    title.resize(kTitleBytes, ' ');
    std::vector<std::string> words{"kvmserver", "--function-process", std::move(title), std::to_string(kControl)};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<std::pair<UniqueFd, int>> given;
    given.emplace_back(above(out.theirs.get()), STDOUT_FILENO);
    given.emplace_back(above(err.theirs.get()), STDERR_FILENO);
    given.emplace_back(above(theirs.get()), kControl);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addchdir_np(&actions, "/");
    for (const auto& [fd, number] : given)
        posix_spawn_file_actions_adddup2(&actions, fd.get(), number);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR2})
        sigaddset(&usual, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    // A group of its own: Ctrl-C at the daemon is the daemon's to pass on.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::vector<char*> argv;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    const int error = ::posix_spawn(&pid_, executable.c_str(), &actions, &attributes, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) {
        pid_ = -1;
        throw HostError(error, "start the process of a function");
    }
    pid_fd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    if (!pid_fd_) {
        const int why = errno;
        kill();
        reap();
        throw HostError(why, "pidfd_open");
    }
    control_ = std::move(ours);
    output_ = std::move(out.ours);
    errors_ = std::move(err.ours);
}

void FunctionProcess::assign(const FunctionProgram& program, CacheService& cache) {
    require_open_files(program);
    for (const std::string& text : {program.name + "\n" + program.after_restore + "\n", list_of(*program.snapshot), program.values,
                                    program.environment, (program.tell_excess ? std::string(1, link::kTell) : "") + program.ceilings}) {
        const UniqueFd file(::memfd_create("kvmserver-assignment", MFD_CLOEXEC));
        if (!file)
            throw_errno("memfd_create");
        write_all(file.get(), std::as_bytes(std::span(text)), "the assignment of a process");
        link::Message message;
        message.kind = link::Kind::assign;
        if (!link::send(control_.get(), message, file.get()))
            throw_errno("tell a process what it serves");
    }
    send_pieces(control_.get(), *program.snapshot);
    // Each chunk is a piece; a large page is of chunks.
    const std::uint64_t most_bytes = program.snapshot->pieces().size() * UnpackedCache::kMostCopyBytes;
    const UniqueFd socket =
        cache.connect({program.name, tenant_of(program.function), program.snapshot->digest(), most_bytes});
    link::Message message;
    message.kind = link::Kind::cache;
    if (!link::send(control_.get(), message, socket.get()))
        throw_errno("give a process its way to the cache");
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
    return WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                               : fmt::format("exited with status {}", WEXITSTATUS(status));
}

} // namespace kvmserver::daemon
