#include "src/runner/after_restore.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/renumber.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr std::size_t kMostReply = 64 * 1024; // what is looked at of it

// The client's side of the request, on a thread of its own: both directions at once, until the program
// closes.
class Exchange {
public:
    Exchange(UniqueFd fd, std::string request)
        : fd_(std::move(fd)), request_(std::move(request)), thread_([this] { run(); }) {}
    ~Exchange() { finish(); }
    // The reply, or its beginning.
    const std::string& finish() {
        if (thread_.joinable()) {
            ::shutdown(fd_.get(), SHUT_RD);
            thread_.join();
        }
        return reply_;
    }
    const std::string& wait() {
        thread_.join();
        return reply_;
    }

private:
    void run() {
        std::string_view left = request_;
        for (char buffer[16384];;) {
            pollfd wanted{fd_.get(), static_cast<short>(left.empty() ? POLLIN : POLLIN | POLLOUT), 0};
            if (::poll(&wanted, 1, -1) < 0)
                continue;
            if (wanted.revents & POLLOUT) {
                const ssize_t n = ::send(fd_.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n > 0)
                    left.remove_prefix(static_cast<std::size_t>(n));
                else if (errno != EAGAIN && errno != EINTR)
                    left = {};
            }
            if (wanted.revents & (POLLIN | POLLHUP | POLLERR)) {
                const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
                if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                    return;
                if (n > 0 && reply_.size() < kMostReply)
                    reply_.append(buffer, static_cast<std::size_t>(n));
            }
        }
    }

    UniqueFd fd_;
    std::string request_, reply_;
    std::thread thread_; // last: it uses the rest
};

// Of the first reply that is not an interim one; 0: there is none.
unsigned status_of(std::string_view reply) {
    while (reply.size() >= 12 && reply.starts_with("HTTP/1.")) {
        if (reply[9] != '1')
            return static_cast<unsigned>((reply[9] - '0') * 100 + (reply[10] - '0') * 10 + (reply[11] - '0'));
        const auto end = reply.find("\r\n\r\n");
        if (end == reply.npos)
            break;
        reply.remove_prefix(end + 4);
    }
    return 0;
}

[[noreturn]] void fail(ExitCode code, const std::string& path, const std::string& why) {
    throw UserError(code, fmt::format("the after-restore hook: POST {}: {}", path, why));
}

} // namespace

std::shared_ptr<MachineImage> after_restore(const Setup& setup, std::shared_ptr<const MachineImage> image,
                                            const std::string& path, const std::string& body) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        throw_errno("socketpair");
    UniqueFd ours(pair[0]), theirs(pair[1]);
    Driver driver(*setup.listeners, note_line);
    auto machine = Machine::clone(setup.env, std::move(image), driver, ResetStrategy::working_set);
    if (!driver.attach(*machine, Arrival{std::move(theirs), machine->listeners().front().id, {}, {}}))
        fail(ExitCode::failure, path, "the machine has no room for a connection");
    Exchange exchange(
        std::move(ours),
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kvmserver-after-restore\r\n"
                    "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                    path, body.size(), body));
    Driver::Until until;
    until.one_connection = true;
    until.idle_limit_ns = static_cast<std::uint64_t>(setup.env.limits.request_seconds * 1e9);
    const DriveEnd end = driver.drive(*machine, until);
    if (end != DriveEnd::closed)
        driver.drop_connections(true);
    if (end == DriveEnd::stopped)
        fail(ExitCode::failure, path, "the program ended: " + driver.stop().report);
    if (end == DriveEnd::timeout)
        fail(ExitCode::unreachable, path,
             fmt::format("no answer within {:.4g} s (max-request-time)", setup.env.limits.request_seconds));
    if (end == DriveEnd::requested)
        fail(ExitCode::failure, path, "stopped");
    const unsigned status = status_of(exchange.wait());
    if (status < 200 || status > 299)
        fail(ExitCode::failure, path, status == 0 ? "no HTTP reply" : fmt::format("status {}", status));
    Driver::Until quiet;
    quiet.quiescent = true;
    quiet.deadline_ns = host_mono_ns() + until.idle_limit_ns;
    if (driver.drive(*machine, quiet) != DriveEnd::quiescent)
        fail(ExitCode::failure, path, "the program does not wait for connections afterwards");
    return renumber(*std::move(*machine).into_image(), {});
}

} // namespace kvmserver
