#include "src/runner/gdb_server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/linux/net_rules.hpp"
#include "tinykvm/machine/debug_target.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kOneClient = 1;

[[noreturn]] void usage(const std::string& text) { throw UserError(ExitCode::usage, text); }

UniqueFd new_socket(int family) {
    UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        throw_errno("socket for gdb");
    return fd;
}

void listen_at(const UniqueFd& fd, const sockaddr* address, socklen_t bytes, const std::string& shown) {
    if (::bind(fd.get(), address, bytes) != 0 || ::listen(fd.get(), kOneClient) != 0)
        throw UserError(ExitCode::unreachable, fmt::format("--gdb: cannot listen at {}: {}; choose another address",
                                                           shown, std::strerror(errno)));
}

} // namespace

GdbServer::GdbServer(const std::string& option, const std::string& address, const Stopper& stop) : stop_(stop) {
    if (address.starts_with(kUnix)) {
        path_ = address.substr(kUnix.size());
        sockaddr_un at{};
        at.sun_family = AF_UNIX;
        if (path_.empty() || path_.size() >= sizeof(at.sun_path))
            usage(
                fmt::format("{}: '{}' is no path of a socket (1 to {} bytes)", option, path_, sizeof(at.sun_path) - 1));
        std::memcpy(at.sun_path, path_.c_str(), path_.size() + 1);
        listener_ = new_socket(AF_UNIX);
        const std::string path = std::exchange(path_, ""); // not ours to remove until it is bound
        const mode_t before = ::umask(0177);
        try {
            listen_at(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof(at), path);
        } catch (...) {
            ::umask(before);
            throw;
        }
        ::umask(before);
        path_ = path;
        command_ = "target remote " + path;
        return;
    }
    const auto colon = address.rfind(':');
    const std::string host = colon == address.npos ? "127.0.0.1" : address.substr(0, colon);
    const std::string digits = address.substr(colon == address.npos ? 0 : colon + 1);
    std::uint16_t port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size())
        usage(fmt::format("{}: '{}' is not PORT, 127.0.0.1:PORT, [::1]:PORT or unix:PATH", option, address));
    if (host == "[::1]" || host == "::1") {
        sockaddr_in6 at{};
        at.sin6_family = AF_INET6;
        at.sin6_port = htons(port);
        at.sin6_addr = in6addr_loopback;
        listener_ = new_socket(AF_INET6);
        listen_at(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof(at), address);
    } else {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(port);
        const std::string number = host.empty() || host == "localhost" ? "127.0.0.1" : host;
        if (::inet_pton(AF_INET, number.c_str(), &at.sin_addr) != 1 || ntohl(at.sin_addr.s_addr) >> 24 != 127)
            usage(fmt::format("{}: '{}' is not an address of this host alone (127.0.0.1, [::1], unix:PATH); whoever "
                              "connects controls the program, so from elsewhere use `ssh -L`",
                              option, address));
        listener_ = new_socket(AF_INET);
        const int on = 1;
        ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        listen_at(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof(at), address);
    }
    sockaddr_storage bound{};
    socklen_t bytes = sizeof(bound);
    if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0)
        throw_errno("getsockname");
    command_ = "target remote " + to_string(reinterpret_cast<const sockaddr*>(&bound), bytes);
}

GdbServer::~GdbServer() {
    if (!path_.empty())
        ::unlink(path_.c_str());
}

void GdbServer::announce(const std::string& program) const {
    fmt::print("Waiting for gdb: gdb {} -ex '{}'\n", printable(program), command_);
    std::fflush(stdout);
}

bool GdbServer::wait_for(int fd, short events) const {
    for (;;) {
        std::array<pollfd, 2> fds{{{fd, events, 0}, {stop_.fd(), POLLIN, 0}}};
        if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR)
            throw_errno("poll");
        if (stop_.requested())
            return false;
        if (fds[0].revents)
            return true;
    }
}

bool GdbServer::accept_client() {
    client_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client_)
        return false;
    const int on = 1;
    ::setsockopt(client_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); // fails for Unix sockets
    new_client_ = true;
    session_ = std::make_unique<debug::Session>(static_cast<debug::Channel&>(*this));
    return true;
}

void GdbServer::hang_up() {
    session_.reset();
    client_.reset();
}

debug::Resume GdbServer::stopped(Machine& machine, const debug::StopReason& reason) {
    DebugTarget target(machine);
    while (!client_) {
        if (!wait_for(listener_.get(), POLLIN))
            return {debug::Resume::Kind::kill};
        accept_client();
    }
    const debug::Resume resume =
        session_->stopped(target, std::exchange(new_client_, false) ? debug::StopReason{} : reason);
    if (resume.kind == debug::Resume::Kind::detach)
        hang_up();
    return stop_.requested() ? debug::Resume{debug::Resume::Kind::kill} : resume;
}

bool GdbServer::wants_stop() {
    if (!client_)
        return accept_client(); // the program stops for a new client
    return session_->asks_to_stop();
}

void GdbServer::ended(const Stop& stop) {
    if (!session_)
        return;
    if (stop.kind == StopKind::exited)
        session_->exited(stop.status);
    else
        session_->died_of(stop.kind == StopKind::killed ? stop.status : 9);
}

bool GdbServer::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::send(client_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n > 0)
            bytes.remove_prefix(static_cast<std::size_t>(n));
        else if (errno != EINTR && (errno != EAGAIN || !wait_for(client_.get(), POLLOUT)))
            return false;
    }
    return true;
}

bool GdbServer::receive(std::string& out) {
    for (;;) {
        if (!wait_for(client_.get(), POLLIN) || !receive_ready(out))
            return false;
        if (!out.empty())
            return true;
    }
}

bool GdbServer::receive_ready(std::string& out) {
    std::array<char, 4096> buffer;
    const ssize_t n = ::recv(client_.get(), buffer.data(), buffer.size(), 0);
    if (n > 0)
        out.append(buffer.data(), static_cast<std::size_t>(n));
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

} // namespace kvmserver
