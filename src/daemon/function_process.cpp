#include "src/daemon/function_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string_view>
#include <vector>

#include "src/daemon/cache_service.hpp"
#include "src/daemon/open_files.hpp"
#include "src/daemon/tenant.hpp"
#include "src/jail/spawn.hpp"
#include "src/link/machine_link.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
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

// As src/snapshot/byte_source.hpp has it.
std::string list_of(const store::StoredSnapshot& snapshot) {
    std::string list;
    for (const store::Piece& piece : snapshot.pieces())
        list += fmt::format("{} {}\n", piece.length, piece.chunk.hex());
    return list;
}

// It has each piece open for as long as it lives, which leaves it few files for all else where a process may
// have few.
void require_open_files(const std::string& name, const store::StoredSnapshot& snapshot) {
    constexpr std::uint64_t kOthers = 64; // its machines, and what their programs open
    rlimit limit{};
    const std::uint64_t needed = snapshot.pieces().size() + kOthers;
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed)
        throw UserError(ExitCode::failure,
                        fmt::format("{}: its snapshot has {} pieces, and a process may have {} open files "
                                    "here: raise that to {} or more "
                                    "(ulimit -n, LimitNOFILE= in the unit)",
                                    name, snapshot.pieces().size(), limit.rlim_cur, needed));
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

FunctionProcess::FunctionProcess(std::uint64_t ahead_bytes, jail::Mode mode)
    : FunctionProcess("/proc/self/exe", mode, {std::to_string(ahead_bytes)}) {}

FunctionProcess FunctionProcess::for_trial(const std::string& executable, jail::Mode mode) {
    raise_open_files(); // this may be a command, which nobody has raised them for
    return {executable, mode, {"0", "with-parent"}};
}

FunctionProcess::FunctionProcess(const std::string& executable, jail::Mode mode, const std::vector<std::string>& more) {
    Pipe out, err;
    auto [ours, theirs] = link::make_pair();
    std::string title = "spare";
    title.resize(kTitleBytes, ' ');
    jail::Program program{executable, {"kvmserver", "--function-process", std::move(title), std::to_string(kControl), std::string(jail::text_of(mode))}, {}, {}};
    // What the C library goes by; nothing else of ours is its concern.
    for (char** entry = environ; *entry; ++entry) {
        const std::string_view text = *entry;
        if (text.starts_with("LD_") || text.starts_with("MALLOC_") || text.starts_with("GLIBC_"))
            program.environment.emplace_back(text);
    }
    program.words.insert(program.words.end(), more.begin(), more.end());
    program.given = {{out.theirs.get(), STDOUT_FILENO}, {err.theirs.get(), STDERR_FILENO}, {theirs.get(), kControl}};
    jail::Spawned spawned = jail::spawn(program, mode);
    pid_ = spawned.pid;
    pid_fd_ = std::move(spawned.pid_fd);
    control_ = std::move(ours);
    output_ = std::move(out.ours);
    errors_ = std::move(err.ours);
}

void FunctionProcess::tell(link::Kind kind, const std::string& text) {
    const UniqueFd file(::memfd_create("kvmserver-assignment", MFD_CLOEXEC));
    if (!file)
        throw_errno("memfd_create");
    write_all(file.get(), std::as_bytes(std::span(text)), "the assignment of a process");
    link::Message message;
    message.kind = kind;
    if (!link::send(control_.get(), message, file.get()))
        throw_errno("tell a process what it serves");
}

std::optional<std::string> FunctionProcess::answer() {
    constexpr int kPatienceMs = 3000; // other functions may be waiting to be started
    constexpr std::size_t kMostBytes = 4 << 20;
    pollfd said{control_.get(), POLLIN, 0};
    if (::poll(&said, 1, kPatienceMs) <= 0)
        return std::nullopt;
    const auto received = link::receive(control_.get(), link::Wait::no);
    if (!received || received->message.kind != link::Kind::described || !received->fd)
        return std::nullopt;
    std::string text(kMostBytes, '\0');
    const auto bytes = read_at(received->fd.get(), 0, std::as_writable_bytes(std::span(text)));
    if (!bytes || *bytes == kMostBytes)
        return std::nullopt;
    text.resize(*bytes);
    return text;
}

std::optional<jail::Plan> FunctionProcess::describe(const store::StoredSnapshot& snapshot, const std::string& closed) {
    require_open_files("a snapshot", snapshot);
    tell(link::Kind::jail, closed);
    tell(link::Kind::describe, list_of(snapshot));
    send_pieces(control_.get(), snapshot);
    const auto text = answer();
    return text ? jail::plan_from(*text) : std::nullopt;
}

std::optional<std::string> FunctionProcess::missing_walls() {
    tell(link::Kind::jail, jail::to_text({}));
    tell(link::Kind::walls, "");
    return answer();
}

void FunctionProcess::assign(const FunctionProgram& program, CacheService& cache) {
    require_open_files(program.name, *program.snapshot);
    tell(link::Kind::jail, program.jail);
    for (const std::string& text : {program.name + "\n" + program.after_restore + "\n", list_of(*program.snapshot), program.values,
                                    program.environment, (program.tell_excess ? std::string(1, link::kTell) : "") + program.ceilings})
        tell(link::Kind::assign, text);
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
