#include "bench/micro/function.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <system_error>

#include "src/runner/request_machine.hpp"
#include "src/setup/report.hpp"

namespace kvmserver::micro {

using namespace tinykvm;

namespace {

namespace fs = std::filesystem;

class TempFolder {
public:
    TempFolder() : path_((fs::temp_directory_path() / "kvmserver-micro-XXXXXX").string()) {
        if (!::mkdtemp(path_.data()))
            throw std::system_error(errno, std::generic_category(), path_);
    }
    ~TempFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    fs::path path() const { return path_; }

private:
    std::string path_;
};

const TempFolder& folder() {
    static const TempFolder folder;
    return folder;
}

// The report is on stdout, perhaps as JSON: nothing else may write to it.
class QuietStdout {
public:
    QuietStdout() : saved_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) {
        std::fflush(stdout);
        const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
        ::dup2(null.get(), STDOUT_FILENO);
    }
    ~QuietStdout() {
        std::fflush(stdout);
        ::dup2(saved_.get(), STDOUT_FILENO);
    }
    QuietStdout(const QuietStdout&) = delete;
    QuietStdout& operator=(const QuietStdout&) = delete;

private:
    UniqueFd saved_;
};

fs::path take_snapshot(const Program& program) {
    Options options = options_for(folder().path(), Cache::kept);
    std::string name;
    for (const std::string& word : program)
        name += (name.empty() ? "" : "-") + word;
    options.snapshot_file = folder().path() / (name + ".snap");
    options.program = fs::read_symlink("/proc/self/exe").parent_path() / ("micro_" + program.front());
    options.args.assign(program.begin() + 1, program.end());
    options.warmup = 1;
    options.level = 1; // half a gigabyte is to be compressed, and what cannot be is as slow to unpack at any level
    const QuietStdout quiet;
    if (const int code = make_snapshot(options); code != 0)
        throw std::runtime_error("no snapshot of " + name);
    return options.snapshot_file;
}

} // namespace

const fs::path& snapshot_of(const Program& program) {
    static std::map<Program, fs::path> made;
    auto at = made.find(program);
    if (at == made.end())
        at = made.emplace(program, take_snapshot(program)).first;
    return at->second;
}

Options options_for(const fs::path& snapshot, Cache cache) {
    Options options;
    options.snapshot_file = snapshot;
    options.cwd = "/";
    options.ephemeral = true;
    options.permissions.listen = {NetRule{}};
    if (cache == Cache::kept)
        options.cache = folder().path() / "cache";
    return options;
}

Server::Server(Restored& restored, const Options& options)
    : loop_(*restored.setup().listeners, note_line),
      machine_(Machine::clone(restored.setup().env, restored.image(), loop_,
                              uses_dirty_bits(restored.setup(), options) ? ResetStrategy::dirty_bits
                                                                         : ResetStrategy::working_set)) {}

std::uint64_t Server::request(const std::string& path) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        throw std::system_error(errno, std::generic_category(), "socketpair");
    const UniqueFd ours(pair[0]);
    UniqueFd theirs(pair[1]);
    const std::string text = "GET " + path + " HTTP/1.1\r\n\r\n";
    // It has arrived when the machine gets it, as a request in `snaprun -e` has.
    (void)!::write(ours.get(), text.data(), text.size());
    if (!loop_.attach(*machine_, IncomingConnection{.fd = std::move(theirs),
                                                    .listener = machine_->listeners().front().id,
                                                    .own = true,
                                                    .report_outcome = {},
                                                    .peer = {}}))
        throw std::runtime_error("no room for a connection");
    EventLoop::Until until;
    until.one_connection = true;
    until.limit_ns = 30'000'000'000;
    if (loop_.run(*machine_, until) != LoopEnd::closed)
        throw std::runtime_error(path + ": no answer: " + loop_.stop().report);
    char reply[512];
    const ssize_t bytes = ::read(ours.get(), reply, sizeof(reply));
    const std::string_view answer(reply, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    const std::size_t body = answer.find("\r\n\r\n");
    if (body == answer.npos)
        throw std::runtime_error(path + ": no reply");
    return std::stoull(std::string(answer.substr(body + 4)));
}

} // namespace kvmserver::micro
