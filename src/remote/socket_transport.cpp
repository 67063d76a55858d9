// The daemon of this host, by its Unix socket. Loading libcurl would take most of the time of a short command.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "src/common/unix_address.hpp"
#include "src/http/body.hpp"
#include "src/http/reply_head.hpp"
#include "src/remote/transport.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::remote {
namespace {

using Clock = std::chrono::steady_clock;
using tinykvm::ExitCode;
using tinykvm::UniqueFd;
using tinykvm::UserError;

// The server has closed a connection that was kept, before it read the request.
struct Closed {};

// A request on its way, and its reply.
class Exchange {
public:
    Exchange(int fd, const Ask& ask, const Server& server) : fd_(fd), ask_(ask), server_(server), out_(head()) {
        out_ += ask.body;
    }

    // Returns whether the connection can be used again. Throws Closed, Broken, UserError.
    bool run() {
        const auto begin = Clock::now();
        auto moved = begin;
        while (!complete_) {
            wait(ask_.transfer ? moved : begin);
            if (!send_more() && !receive())
                continue;
            moved = Clock::now();
        }
        return keeps_ && !cut_ && sent_ == out_.size();
    }
    Reply take_reply() { return std::move(reply_); }

private:
    std::string head() const {
        std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kvmserver\r\nAccept: */*\r\n",
                                       ask_.method, ask_.target);
        for (const auto& [name, value] : ask_.headers)
            head += fmt::format("{}: {}\r\n", name, value);
        if (!server_.token.empty())
            head += fmt::format("Authorization: Bearer {}\r\n", server_.token);
        if (!ask_.body.empty())
            head += "Content-Type: application/json\r\n";
        if (!ask_.body.empty() || ask_.method == "POST" || ask_.method == "PUT" || ask_.method == "PATCH")
            head += fmt::format("Content-Length: {}\r\n", ask_.body.size());
        return head + "\r\n";
    }

    // Until bytes can be sent or received. `since`: when the time began that the server may take.
    void wait(Clock::time_point since) const {
        const auto limit = std::chrono::duration<double>(server_.timeout_seconds);
        for (;;) {
            pollfd wanted{fd_, static_cast<short>(sent_ < out_.size() ? POLLIN | POLLOUT : POLLIN), 0};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - (Clock::now() - since)).count();
            if (!ask_.endless && left <= 0) // also while bytes drip in
                throw Broken(fmt::format("{}: no reply within {} s: --timeout gives it longer", server_.shown(),
                                         server_.timeout_seconds));
            const int n =
                ::poll(&wanted, 1, ask_.endless ? -1 : static_cast<int>(std::min<long long>(left, 1'000'000)));
            if (n > 0)
                return;
            if (n < 0 && errno != EINTR)
                tinykvm::throw_errno("poll");
        }
    }

    bool send_more() {
        if (sent_ == out_.size())
            return false;
        const ssize_t count = ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (count < 0) { // the server reads no more, but its reply counts
            out_.resize(sent_);
            cut_ = true;
        }
        sent_ += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
        return count > 0;
    }

    bool receive() {
        char bytes[65536];
        const ssize_t count = ::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (count <= 0) {
            if (!any_)
                throw Closed();
            if (!body_ || body_->kind() != http::BodyKind::until_close)
                throw Broken(fmt::format("{}: its reply broke off", server_.shown()));
            keeps_ = false;
            complete_ = true;
            return true;
        }
        any_ = true;
        take({bytes, static_cast<std::size_t>(count)});
        return true;
    }

    void take(std::string_view bytes) {
        if (!body_) {
            head_ += bytes;
            if (!take_heads())
                return;
            const std::string rest = std::exchange(head_, {});
            return take_body(rest);
        }
        take_body(bytes);
    }

    // Returns whether the head has come, after interim ones, and leaves in head_ what is behind it.
    bool take_heads() {
        for (;;) {
            const auto state = end_.feed(head_, {});
            if (state == http::HeadEnd::State::more)
                return false;
            http::ReplyHead head;
            http::Fault fault = end_.fault();
            if (state == http::HeadEnd::State::found)
                fault = http::parse_reply_head(std::string_view(head_).substr(0, end_.size()), {},
                                               {.head_request = ask_.method == "HEAD"}, head);
            if (fault)
                throw UserError(ExitCode::unreachable,
                                fmt::format("{} does not answer as HTTP: {}", server_.shown(), fault.detail));
            if (!head.interim()) {
                reply_.status = head.status;
                keeps_ = head.minor_version > 0;
                for (const http::Field& field : head.fields) {
                    reply_.headers.emplace_back(field.name, field.value);
                    if (http::equal_nocase(field.name, "connection") && http::list_has(field.value, "close"))
                        keeps_ = false;
                }
                body_.emplace(head.body);
            }
            head_.erase(0, end_.size());
            end_.reset();
            if (body_)
                return true;
        }
    }

    void take_body(std::string_view bytes) {
        std::string payload;
        const bool chunked = body_->kind() == http::BodyKind::chunked;
        const std::size_t used = body_->feed(bytes, chunked ? &payload : nullptr);
        if (body_->fault())
            throw UserError(ExitCode::unreachable,
                            fmt::format("{} does not answer as HTTP: {}", server_.shown(), body_->fault().detail));
        keeps_ &= used == bytes.size();
        complete_ = body_->done();
        const std::string_view content = chunked ? std::string_view(payload) : bytes.substr(0, used);
        if (content.empty())
            return;
        if (ask_.sink && reply_.status < 400) {
            if (!ask_.sink(content)) {
                keeps_ = keeps_ && complete_;
                complete_ = true;
            }
            return;
        }
        if (reply_.body.size() + content.size() > kMaxReply)
            throw UserError(ExitCode::failure,
                            fmt::format("{}{}: the reply is too long", server_.shown(), ask_.target));
        reply_.body += content;
    }

    const int fd_;
    const Ask& ask_;
    const Server& server_;
    std::string out_;
    std::size_t sent_ = 0;
    bool any_ = false; // of the reply has come
    std::string head_; // what has come of it
    http::HeadEnd end_;
    std::optional<http::Body> body_; // once the head has come
    Reply reply_;
    bool cut_ = false; // not all of the request was taken
    bool keeps_ = false, complete_ = false;
};

class SocketTransport final : public Transport {
public:
    explicit SocketTransport(const Server& server) : server_(server) {}

    Reply ask(const Ask& ask) override {
        for (bool kept = static_cast<bool>(fd_);; kept = false) {
            if (!fd_)
                connect();
            UniqueFd fd = std::move(fd_); // closed if anything fails
            Exchange exchange(fd.get(), ask, server_);
            try {
                if (exchange.run())
                    fd_ = std::move(fd);
            } catch (const Closed&) {
                if (kept)
                    continue;
                throw Broken(fmt::format("{}: it closed the connection without a reply", server_.shown()));
            }
            return exchange.take_reply();
        }
    }

private:
    void connect() {
        const UniqueFd folder(::open(server_.socket.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        const sockaddr_un address = unix_address(folder.get(), server_.socket.filename().string());
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const timeval limit{kConnectSeconds, 0}; // for a server that accepts no more
        if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
            ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            throw Broken(fmt::format("{}: {}", server_.shown(), std::strerror(errno)));
        fd_ = std::move(fd);
    }

    const Server& server_;
    UniqueFd fd_; // an idle connection
};

} // namespace

std::unique_ptr<Transport> socket_transport(const Server& server) { return std::make_unique<SocketTransport>(server); }

} // namespace kvmserver::remote
