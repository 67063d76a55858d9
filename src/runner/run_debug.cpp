// `kvmserver debug`: a clone of an image with gdb attached to it.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "src/event_loop/event_loop.hpp"
#include "src/runner/gdb_server.hpp"
#include "src/runner/own_jail.hpp"
#include "src/runner/restored.hpp"
#include "src/setup/report.hpp"
#include "src/snapshot/folder_cache.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/stream_pair.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

std::string read_request(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(file), {});
    if (bytes.empty())
        throw UserError(ExitCode::usage,
                        fmt::format("--request: {} cannot be read or is empty; give a file with the bytes that the "
                                    "program is to read, such as an HTTP request",
                                    path));
    return bytes;
}

// The client of the one connection: sends the request, and prints what comes back until the program closes.
class OneClient {
public:
    OneClient(UniqueFd socket, std::string request)
        : socket_(std::move(socket)), thread_([this, request = std::move(request)] {
              for (std::string_view left = request; !left.empty();) {
                  const ssize_t n = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
                  if (n <= 0 && errno != EINTR)
                      return;
                  left.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
              }
              char buffer[4096];
              for (ssize_t n; (n = ::recv(socket_.get(), buffer, sizeof(buffer), 0)) > 0;)
                  if (::write(STDOUT_FILENO, buffer, static_cast<std::size_t>(n)) != n)
                      return;
          }) {}
    OneClient(const OneClient&) = delete;
    ~OneClient() { thread_.join(); } // the machine's end of the socket is closed by then

private:
    UniqueFd socket_;
    std::thread thread_;
};

int serve_debugged(Restored& restored, GdbServer& gdb, const std::optional<std::string>& request) {
    Setup& setup = restored.setup();
    EventLoop loop(*setup.listeners, note_line);
    MachineEnv env = setup.env;
    env.limits.request_memory = env.limits.memory;
    env.options.patch_code = false;
    // An invocation begins at the image's time, as in a request machine.
    const auto machine = Machine::clone(env, restored.image(), loop, ResetStrategy::working_set);
    if (!machine->attach(gdb))
        throw UserError(ExitCode::failure, "no memory to restore the program's code; raise --max-main-memory");
    loop.stop_at_arrival();
    EventLoop::Until until;
    std::optional<OneClient> client;
    if (request) {
        StreamPair pair = stream_pair();
        // The client's thread waits by itself.
        if (!pair.theirs || ::fcntl(pair.theirs.get(), F_SETFL, 0) != 0)
            throw_errno("socket pair for the request");
        IncomingConnection connection;
        connection.fd = std::move(pair.ours);
        connection.own = true;
        connection.listener = machine->listeners().empty() ? 0 : machine->listeners().front().id;
        client.emplace(std::move(pair.theirs), *request);
        if (!loop.attach(*machine, std::move(connection)))
            throw HostError(ENOSPC, "connection slot of a clean machine");
        until.one_connection = true;
    } else {
        until.accepting = true;
    }
    const LoopEnd end = loop.run(*machine, until);
    loop.drop_connections(false);
    if (end == LoopEnd::requested)
        return 0;
    if (end == LoopEnd::closed) {
        gdb.ended({StopKind::exited, 0, {}});
        return 0;
    }
    gdb.ended(loop.stop());
    return report_stop(program_name(setup.program), loop.stop());
}

} // namespace

int debug_snapshot(const Options& options) {
    OwnJail jail(options);
    StopSignal::instance();
    std::optional<std::string> request;
    if (!options.request_file.empty())
        request = read_request(options.request_file);
    GdbServer gdb("--gdb", options.gdb, StopSignal::instance());
    Restored::Ahead ahead;
    ahead.setup = begin_restored();
    Restored restored(SnapshotReader::open(options.snapshot_file), std::make_shared<FolderCache>(options.cache),
                      options, request ? Restored::Sockets::none : Restored::Sockets::open, {}, std::move(ahead));
    for (const std::string& problem : restored.env_problems())
        note_line("--env: " + problem);
    jail.enter(restored.setup(), options, false);
    std::string where;
    for (const std::string& address : restored.setup().listeners->addresses())
        where += (where.empty() ? " on " : ", ") + address;
    fmt::print("Program '{}' restored{}; it stops at {} request\n", printable(program_name(restored.setup().program)),
               where, request ? "the" : "each");
    gdb.announce(restored.setup().program.path);
    restored.fill_behind([] { StopSignal::instance().request(); });
    const int code = serve_debugged(restored, gdb, request);
    return restored.damaged() ? static_cast<int>(ExitCode::bad_snapshot) : code;
}

} // namespace kvmserver
