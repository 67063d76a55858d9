#include "src/capture/synthetic_request.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <thread>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/stream_pair.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr std::size_t kMaxReply = 64 * 1024; // bytes kept of a reply

// The client, on its own thread: sends and receives at once, until the program closes. What the socket takes is sent
// before the constructor returns.
class Client {
public:
    Client(UniqueFd fd, std::string request)
        : fd_(std::move(fd)), request_(std::move(request)), left_(sent(fd_.get(), request_)), said_all_(left_.empty()),
          thread_([this] { run(); }) {}
    ~Client() {
        if (thread_.joinable()) {
            ::shutdown(fd_.get(), SHUT_RDWR);
            thread_.join();
        }
    }
    bool said_all() const { return said_all_; } // by then
    // Call after the other side has been closed.
    std::string reply() {
        thread_.join();
        return std::move(reply_);
    }

private:
    // Returns what is left of it.
    static std::string_view sent(int fd, std::string_view left) {
        const ssize_t n = ::send(fd, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            left.remove_prefix(static_cast<std::size_t>(n));
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            left = {};
        return left;
    }

    void run() {
        std::string_view left = left_;
        for (char buffer[16384];;) {
            pollfd wanted{fd_.get(), static_cast<short>(left.empty() ? POLLIN : POLLIN | POLLOUT), 0};
            if (::poll(&wanted, 1, -1) < 0)
                continue;
            if (wanted.revents & POLLOUT)
                left = sent(fd_.get(), left);
            if (wanted.revents & (POLLIN | POLLHUP | POLLERR)) {
                const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
                if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                    return;
                if (n > 0 && reply_.size() < kMaxReply)
                    reply_.append(buffer, static_cast<std::size_t>(n));
            }
        }
    }

    UniqueFd fd_;
    const std::string request_;
    const std::string_view left_;
    const bool said_all_;
    std::string reply_;
    std::thread thread_; // last member: uses the others
};

} // namespace

unsigned SyntheticReply::status() const {
    constexpr std::size_t kAt = 9, kDigits = 3; // "HTTP/1.1 200"
    std::string_view rest = text;
    while (rest.size() >= kAt + kDigits && rest.starts_with("HTTP/1.")) {
        const std::string_view code = rest.substr(kAt, kDigits);
        if (!std::all_of(code.begin(), code.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
            return 0;
        if (code[0] != '1')
            return static_cast<unsigned>((code[0] - '0') * 100 + (code[1] - '0') * 10 + (code[2] - '0'));
        const auto head_end = rest.find("\r\n\r\n");
        if (head_end == rest.npos)
            break;
        rest.remove_prefix(head_end + 4);
    }
    return 0;
}

SyntheticReply ask(Machine& machine, EventLoop& loop, std::string request, const Limits& limits) {
    auto [ours, theirs] = stream_pair();
    if (!ours)
        throw_errno("socketpair");
    const std::uint32_t listener = machine.listeners().front().id;
    if (!loop.attach(machine,
                     IncomingConnection{
                         .fd = std::move(theirs), .listener = listener, .own = true, .report_outcome = {}, .peer = {}}))
        throw UserError(ExitCode::failure, "the machine has no room for a connection");
    Client client(std::move(ours), std::move(request));
    EventLoop::Until until;
    until.one_connection = true;
    until.client_said_all = client.said_all();
    until.limit_ns = static_cast<std::uint64_t>(limits.request_seconds * 1e9);
    until.total_ns = static_cast<std::uint64_t>(limits.request_total_seconds * 1e9);
    SyntheticReply reply;
    reply.end = loop.run(machine, until);
    if (reply.end != LoopEnd::closed)
        loop.drop_connections(true);
    reply.text = client.reply();
    return reply;
}

LoopEnd run_until_quiet(Machine& machine, EventLoop& loop, double seconds) {
    EventLoop::Until quiet;
    quiet.quiescent = true;
    quiet.limit_ns = static_cast<std::uint64_t>(seconds * 1e9);
    quiet.all_waits_count = true;
    return loop.run(machine, quiet);
}

bool settle(Machine& machine, EventLoop& loop, double seconds) {
    return run_until_quiet(machine, loop, seconds) == LoopEnd::quiescent;
}

LoopEnd run_out_timers(Machine& machine, EventLoop& loop, std::uint64_t seconds, double patience) {
    // Gives up on programs whose timers never end: a heartbeat every millisecond, or a slow one.
    constexpr std::uint64_t kPatienceNs = 2'000'000'000;
    const std::uint64_t begin = host_mono_ns();
    for (std::uint64_t skipped = 0;;) {
        const std::uint64_t now = host_mono_ns(), deadline = machine.wait().deadline_host_ns;
        const std::uint64_t ahead = deadline > now ? deadline - now : 0;
        if (now > begin + kPatienceNs || ahead > seconds * 1'000'000'000 - skipped)
            return LoopEnd::quiescent;
        machine.skip_time(ahead);
        skipped += ahead;
        if (const LoopEnd end = run_until_quiet(machine, loop, patience); end != LoopEnd::quiescent)
            return end;
    }
}

} // namespace kvmserver
