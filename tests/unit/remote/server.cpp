#include "tests/unit/remote/server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tinykvm/base/error.hpp"

namespace kvmserver::remote::test {
namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

Asked parse(std::string_view head) {
    Asked asked;
    const auto line_end = head.find("\r\n");
    const std::string_view line = head.substr(0, line_end);
    const auto space = line.find(' ');
    asked.method = line.substr(0, space);
    asked.target = line.substr(space + 1, line.rfind(' ') - space - 1);
    head.remove_prefix(line_end + 2);
    while (!head.empty()) {
        const auto end = head.find("\r\n"), colon = head.find(": ");
        asked.headers[lower(head.substr(0, colon))] = head.substr(colon + 2, end - colon - 2);
        head.remove_prefix(end + 2);
    }
    return asked;
}

} // namespace

std::string Asked::header(const std::string& name) const {
    const auto at = headers.find(name);
    return at == headers.end() ? "" : at->second;
}

std::uint64_t Turn::body_bytes() const { return std::strtoull(asked_.header("content-length").c_str(), nullptr, 10); }

bool Turn::fill() {
    char bytes[16384];
    const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
    if (count > 0)
        buffer_.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
}

void Turn::take_body(std::uint64_t most) {
    if (!std::exchange(continued_, true) && !asked_.header("expect").empty())
        send("HTTP/1.1 100 Continue\r\n\r\n");
    const std::uint64_t wanted = std::min(most, body_bytes());
    while (asked_.body.size() < wanted) {
        if (buffer_.empty() && !fill())
            return hang_up();
        const std::size_t count = std::min<std::uint64_t>(wanted - asked_.body.size(), buffer_.size());
        asked_.body.append(buffer_, 0, count);
        buffer_.erase(0, count);
    }
}

void Turn::reply(unsigned status, std::string_view body,
                 const std::vector<std::pair<std::string, std::string>>& headers) {
    take_body();
    std::string text = fmt::format("HTTP/1.1 {} Something\r\n", status);
    for (const auto& [name, value] : headers)
        text += fmt::format("{}: {}\r\n", name, value);
    if (status != 204)
        text += fmt::format("Content-Length: {}\r\n", body.size());
    text += "\r\n";
    if (asked_.method != "HEAD")
        text += body;
    send(text);
}

void Turn::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0)
            return hang_up();
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

void Turn::take_all_there_is() {
    while (fill())
        buffer_.clear();
    hang_up();
}

Server::Server(Handler handler, int family) : handler_(std::move(handler)) {
    listen_at(family);
    start();
}

Server::Server(Handler handler, const std::string& socket) : handler_(std::move(handler)) {
    listen_at(socket);
    start();
}

Server::Server(Handler handler, By by) : handler_(std::move(handler)) {
    if (by == By::tcp)
        listen_at(AF_INET);
    else
        listen_at(folder_.emplace() / "api.sock");
    start();
}

remote::Server Server::where(std::string token) const {
    return {.url = url_, .socket = socket_, .token = std::move(token), .ca_file = {}};
}

void Server::listen_at(int family) {
    listening_.reset(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    socklen_t bytes = 0;
    if (family == AF_INET6) {
        auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
        v6.sin6_family = AF_INET6;
        v6.sin6_addr = in6addr_loopback;
        bytes = sizeof v6;
    } else {
        auto& v4 = reinterpret_cast<sockaddr_in&>(address);
        v4.sin_family = AF_INET;
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        bytes = sizeof v4;
    }
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (!listening_ || ::bind(listening_.get(), any, bytes) != 0 || ::getsockname(listening_.get(), any, &bytes) != 0)
        tinykvm::throw_errno("bind to loopback");
    url_ = family == AF_INET6
               ? fmt::format("http://[::1]:{}", ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port))
               : fmt::format("http://127.0.0.1:{}", ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port));
}

// However long the path is: sun_path holds 107 bytes.
void Server::listen_at(const std::string& socket) {
    socket_ = socket;
    const std::filesystem::path path(socket);
    const tinykvm::UniqueFd folder(::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const std::string name = fmt::format("/proc/self/fd/{}/{}", folder.get(), path.filename().string());
    listening_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
    if (!listening_ || ::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        tinykvm::throw_errno("bind " + socket);
}

void Server::start() {
    stop_.reset(::eventfd(0, EFD_CLOEXEC));
    if (!stop_ || ::listen(listening_.get(), 16) != 0)
        tinykvm::throw_errno("listen");
    thread_ = std::thread([this] { run(); });
}

Server::~Server() {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
}

std::vector<Asked> Server::asked() const {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return !busy_; });
    if (error_)
        std::rethrow_exception(error_);
    return all_;
}

std::size_t Server::connections() const {
    const std::lock_guard lock(mutex_);
    return connections_;
}

void Server::run() {
    for (;;) {
        pollfd wanted[] = {{listening_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
        if (::poll(wanted, 2, -1) < 0)
            continue;
        if (wanted[1].revents)
            return;
        const tinykvm::UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!client)
            continue;
        {
            const std::lock_guard lock(mutex_);
            ++connections_;
        }
        serve(client.get());
    }
}

void Server::serve(int fd) {
    std::string buffer;
    for (;;) {
        const auto end = buffer.find("\r\n\r\n");
        if (end == buffer.npos) {
            pollfd wanted[] = {{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
            if (::poll(wanted, 2, -1) < 0)
                continue;
            char bytes[16384];
            const ssize_t count = wanted[1].revents ? 0 : ::recv(fd, bytes, sizeof bytes, 0);
            if (count <= 0)
                return;
            buffer.append(bytes, static_cast<std::size_t>(count));
            continue;
        }
        Asked asked = parse(std::string_view(buffer).substr(0, end + 2));
        buffer.erase(0, end + 4);
        Turn turn(fd, asked, buffer);
        {
            const std::lock_guard lock(mutex_);
            busy_ = true;
        }
        std::exception_ptr error;
        try {
            handler_(turn);
        } catch (...) {
            error = std::current_exception();
            turn.hang_up();
        }
        {
            const std::lock_guard lock(mutex_);
            all_.push_back(asked);
            if (error)
                error_ = error;
            busy_ = false;
        }
        idle_.notify_all();
        if (!turn.open())
            return;
    }
}

Server::Handler always(unsigned status, std::string body, std::vector<std::pair<std::string, std::string>> headers) {
    return [status, body = std::move(body), headers = std::move(headers)](Turn& turn) {
        turn.reply(status, body, headers);
    };
}

} // namespace kvmserver::remote::test
