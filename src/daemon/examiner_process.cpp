#include "src/daemon/examiner_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "src/daemon/piece_sender.hpp"
#include "src/daemon/process_messages.hpp"
#include "src/jail/plan.hpp"
#include "src/jail/spawn.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;
using std::chrono::seconds;

namespace {

// Slow enough for a busy host with slow disks.
constexpr std::uint64_t kBytesPerSecond = 16 << 20;
constexpr std::uint64_t kCompressedBytesPerSecond = 128 << 10; // of CPU time
constexpr std::size_t kMaxLine = 1000;

// Ignores that the process has closed its socket: it may have sent the reason, which Process::answer() reads.
template <class Action>
void ignore_hang_up(const Action& action) {
    try {
        action();
    } catch (const HostError& error) {
        if (error.code().value() != EPIPE && error.code().value() != ECONNRESET)
            throw;
    }
}

[[noreturn]] void bad(const std::string& why) { throw UserError(ExitCode::bad_snapshot, why); }

// A child process; the destructor kills and reaps it.
class Child {
public:
    explicit Child(jail::Spawned spawned) : spawned_(std::move(spawned)) {}
    ~Child() {
        if (spawned_.pid <= 0)
            return;
        ::kill(spawned_.pid, SIGKILL);
        reap();
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    // The reason why there is no valid answer. After it closed its socket, a process may take a while to end on a busy
    // host.
    std::string end(int control) {
        constexpr int kPatienceMs = 10'000;
        pollfd link{control, 0, 0};
        pollfd ended{spawned_.pid_fd.get(), POLLIN, 0};
        const bool hung_up = ::poll(&link, 1, 0) > 0 && (link.revents & POLLHUP) != 0;
        if (!hung_up || ::poll(&ended, 1, kPatienceMs) <= 0)
            return "its examiner gave no valid answer";
        const int status = reap();
        if (!WIFSIGNALED(status))
            return fmt::format("its examiner exited with status {}", WEXITSTATUS(status));
        const int signal = WTERMSIG(status);
        return signal == SIGKILL || signal == SIGXCPU ? "it takes too much time"
                                                      : fmt::format("its examiner was killed by signal {}", signal);
    }

private:
    int reap() {
        int status = 0;
        while (::waitpid(spawned_.pid, &status, 0) < 0 && errno == EINTR) {
        }
        spawned_.pid = -1;
        return status;
    }

    jail::Spawned spawned_;
};

class Process {
public:
    enum class Priority { usual, idle };
    explicit Process(const Examiner& examiner, Priority priority = Priority::usual)
        : Process(examiner, priority, protocol::make_pair()) {}

    int control() const { return control_.get(); }

    SnapshotFacts answer(Depth depth, std::uint64_t file_bytes, seconds patience) {
        const auto begin = std::chrono::steady_clock::now();
        const auto text = receive_text(control(), protocol::Kind::described, kMaxFactsText + 1, patience);
        if (!text || text->empty()) {
            if (std::chrono::steady_clock::now() - begin >= patience)
                bad(fmt::format("it could not be examined within {} s", patience.count()));
            bad("it could not be examined: " + child_.end(control()));
        }
        if (text->front() != protocol::kFacts)
            refused(*text);
        try {
            return facts_from_text(std::string_view(*text).substr(1), depth, file_bytes);
        } catch (const FormatError&) { // at most ours are malformed
            bad("it could not be examined: its examiner gave invalid facts");
        }
    }

    std::optional<Pressed> pressed(int out, const std::function<bool()>& stop) {
        constexpr int kWatchMs = 200;
        pollfd said{control(), POLLIN, 0};
        while (::poll(&said, 1, kWatchMs) <= 0)
            if (stop())
                return std::nullopt;
        const auto text = receive_text(control(), protocol::Kind::described, kMaxPressedText + 1, seconds(1));
        if (!text || text->empty())
            bad("it could not be compressed: " + child_.end(control()));
        if (text->front() == protocol::kNothing)
            return std::nullopt;
        if (text->front() != protocol::kPressed)
            refused(*text);
        struct stat info {};
        if (::fstat(out, &info) != 0)
            throw_errno("fstat of a snapshot");
        try {
            return pressed_from_text(std::string_view(*text).substr(1), static_cast<std::uint64_t>(info.st_size));
        } catch (const FormatError&) {
            bad("it could not be compressed: its examiner gave an invalid list of chunks");
        }
    }

private:
    [[noreturn]] void refused(const std::string& text) {
        const std::string line = tinykvm::brief(std::string_view(text).substr(1, kMaxLine));
        if (text.front() == protocol::kBadSnapshot)
            bad(line);
        if (text.front() != protocol::kFailed)
            bad("it could not be examined: " + child_.end(control()));
        throw UserError(ExitCode::failure, "the snapshot could not be examined: " + line);
    }

    using Pair = std::pair<UniqueFd, UniqueFd>;
    Process(const Examiner& examiner, Priority priority, Pair pair)
        : child_(start(examiner, priority, pair.second.get())), control_(std::move(pair.first)) {
        jail::Plan closed;
        closed.mode = examiner.mode;
        ignore_hang_up([&] { send_text(control(), protocol::Kind::jail, jail::to_text(closed)); });
    }

    static jail::Spawned start(const Examiner& examiner, Priority priority, int control) {
        constexpr int kControl = 3;
        const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
        if (!null)
            throw_errno("open /dev/null");
        jail::Program program{
            examiner.executable,
            {"kvmserver", "--examiner", std::to_string(kControl), std::string(jail::text_of(examiner.mode))},
            {},
            {{null.get(), STDOUT_FILENO}, {null.get(), STDERR_FILENO}, {control, kControl}}};
        if (priority == Priority::idle)
            program.words.emplace_back("idle");
        return jail::spawn(program, examiner.mode);
    }

    Child child_;
    UniqueFd control_;
};

protocol::Message question(protocol::Kind kind, seconds patience) {
    protocol::Message message;
    message.kind = kind;
    message.left = static_cast<std::uint32_t>(patience.count());
    return message;
}

} // namespace

SnapshotFacts Examiner::of_file(int file, std::uint64_t bytes) const {
    const seconds patience = least + seconds(bytes / kBytesPerSecond);
    const UniqueFd to_read(::open(fmt::format("/proc/self/fd/{}", file).c_str(), O_RDONLY | O_CLOEXEC));
    if (!to_read)
        throw_errno("open an upload again");
    Process process(*this);
    ignore_hang_up([&] {
        if (!protocol::send(process.control(), question(protocol::Kind::examine, patience), to_read.get()))
            throw_errno("give an examiner its file");
    });
    return process.answer(Depth::whole, bytes, patience);
}

SnapshotFacts Examiner::of_pieces(const store::PieceFiles& pieces, std::uint64_t bytes) const {
    const seconds patience = least + seconds(bytes / kBytesPerSecond);
    require_open_files("a snapshot", pieces);
    Process process(*this);
    ignore_hang_up([&] {
        send_text(process.control(), question(protocol::Kind::examine_pieces, patience), list_of(pieces));
        send_pieces(process.control(), pieces);
    });
    return process.answer(Depth::whole, bytes, patience);
}

SnapshotFacts Examiner::of_stored(const store::StoredSnapshot& snapshot) const {
    require_open_files("a snapshot", snapshot);
    // It is told without its chunks, which may have to come from far.
    const std::size_t count = snapshot.piece_count();
    snapshot.bring(first_pieces(count));
    ComesLater later(count);
    for (const std::size_t piece : snapshot.missing())
        later[piece] = true;
    Process process(*this);
    ignore_hang_up([&] {
        send_text(process.control(), question(protocol::Kind::describe, least), list_of(snapshot, later));
        send_pieces(process.control(), snapshot, later);
    });
    return process.answer(Depth::metadata, 0, least);
}

std::optional<Pressed> Examiner::compress(const store::StoredSnapshot& snapshot, int out,
                                          const std::function<bool()>& stop) const {
    // Ten times what Node takes: 29 MB are 100 MB of pages, and 20 s of CPU.
    const seconds patience = seconds(60) + seconds(snapshot.size() / kCompressedBytesPerSecond);
    require_open_files("a snapshot", snapshot);
    Process process(*this, Process::Priority::idle);
    ignore_hang_up([&] {
        send_text(process.control(), question(protocol::Kind::compress, patience), list_of(snapshot));
        send_pieces(process.control(), snapshot);
        if (!protocol::send(process.control(), question(protocol::Kind::compress, patience), out))
            throw_errno("give an examiner its file");
    });
    return process.pressed(out, stop);
}

} // namespace kvmserver::daemon
