// A client that asks one request after the other, on one connection or on a new one each, and what came of
// them.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "bench/load/reply.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::load {

using Clock = std::chrono::steady_clock;

struct Tally {
    std::vector<double> latencies_us; // of replies with status 200
    std::uint64_t wrong = 0;          // other statuses
    std::uint64_t errors = 0;         // no reply, a broken one, none in time
    std::uint64_t reopened = 0;       // the server closed a connection that was to stay open
    std::uint64_t in_a_row = 0;       // errors since the last reply
    std::string first_error;
    Clock::time_point last_reply;
};

struct Target {
    std::uint16_t port = 0;
    bool keep_alive = false, blocking = true;
    double timeout_s = 10;
    std::string request;
};

class Client {
public:
    enum class Wait { nothing, writable, readable }; // nothing: the request is over, start() the next

    Client(const Target& target, Tally& tally) : target_(target), tally_(tally) {}

    // Keep-alive: the sample begins when the request is sent, else before connect().
    Wait start() {
        reply_ = {};
        done_ = false;
        fresh_ = !fd_;
        begin_ = Clock::now();
        return fresh_ ? open() : send();
    }

    // The connection is ready for what was waited for.
    Wait go_on(Wait ready) { return ready == Wait::writable ? connected() : receive(); }

    bool overdue(Clock::time_point now) const {
        return std::chrono::duration<double>(now - begin_).count() > target_.timeout_s;
    }
    Wait fail(const std::string& what) {
        if (tally_.errors++ == 0)
            tally_.first_error = what;
        ++tally_.in_a_row;
        fd_.reset();
        return Wait::nothing;
    }
    void close() { fd_.reset(); }
    int fd() const { return fd_.get(); }
    std::uint64_t opened() const { return opened_; } // connections so far: tells a new one with an old number

private:
    static constexpr int kOn = 1;

    Wait fail_errno(const char* call) {
        const bool late = errno == EAGAIN || errno == EINPROGRESS;
        const std::string what = done_ ? "close by the server" : call;
        return fail(what + ": " + (late ? "timed out" : std::generic_category().message(errno)));
    }

    Wait open() {
        fd_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (target_.blocking ? 0 : SOCK_NONBLOCK), 0));
        if (!fd_)
            return fail_errno("socket");
        ++opened_;
        if (target_.blocking) {
            const timeval limit{static_cast<time_t>(target_.timeout_s), 0};
            ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
            ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        }
        ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(target_.port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
            return connected();
        return errno == EINPROGRESS && !target_.blocking ? Wait::writable : fail_errno("connect");
    }

    Wait connected() {
        int error = 0;
        socklen_t size = sizeof error;
        if (!target_.blocking && ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0)
            return fail("connect: " + std::generic_category().message(error));
        if (target_.keep_alive)
            begin_ = Clock::now();
        return send();
    }

    Wait send() {
        const ssize_t sent = ::send(fd_.get(), target_.request.data(), target_.request.size(), MSG_NOSIGNAL);
        if (sent < 0 && !fresh_ && (errno == EPIPE || errno == ECONNRESET))
            return reopen();
        if (sent < 0)
            return fail_errno("send");
        if (static_cast<std::size_t>(sent) != target_.request.size())
            return fail("send: the request did not fit the socket");
        return Wait::readable;
    }

    // The server has closed a connection before it saw the request on it, as it may.
    Wait reopen() {
        ++tally_.reopened;
        fd_.reset();
        return start();
    }

    Wait receive() {
        for (;;) {
            const ssize_t got = ::recv(fd_.get(), buffer_.data(), buffer_.size(), 0);
            if (got < 0 && errno == EAGAIN && !target_.blocking)
                return Wait::readable;
            if (done_ && (got == 0 || (got < 0 && errno == ECONNRESET)))
                return over();
            if (got <= 0 && !fresh_ && !reply_.begun() && (got == 0 || errno == ECONNRESET))
                return reopen();
            if (got < 0)
                return fail_errno("recv");
            const Reply::State state =
                got == 0 ? reply_.closed() : reply_.feed({buffer_.data(), static_cast<std::size_t>(got)});
            if (state == Reply::State::malformed)
                return fail(got == 0 ? "the server closed before the end of its reply" : "malformed reply");
            if (state == Reply::State::complete) {
                count();
                if (got == 0 || target_.keep_alive)
                    return over();
            }
        }
    }

    void count() {
        tally_.last_reply = Clock::now();
        tally_.in_a_row = 0;
        done_ = true;
        if (reply_.status() == 200)
            tally_.latencies_us.push_back(
                std::chrono::duration<double, std::micro>(tally_.last_reply - begin_).count());
        else
            ++tally_.wrong;
    }

    Wait over() {
        if (!target_.keep_alive)
            fd_.reset();
        else if (!reply_.keeps_open()) {
            ++tally_.reopened;
            fd_.reset();
        }
        return Wait::nothing;
    }

    const Target& target_;
    Tally& tally_;
    tinykvm::UniqueFd fd_;
    Reply reply_;
    Clock::time_point begin_;
    std::uint64_t opened_ = 0;
    bool fresh_ = false; // on a connection that this request opened
    bool done_ = false;  // the reply is complete, the server's close is waited for
    std::array<char, 64 * 1024> buffer_;
};

} // namespace kvmserver::load
