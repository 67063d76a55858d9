#include "src/admin/socket_exchange.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "src/admin/problem.hpp"
#include "src/http/fields.hpp"
#include "src/http/head_end.hpp"
#include "src/http/problem.hpp"

namespace kvmserver::admin {
namespace {
constexpr int kPatienceMs = 30'000; // for the client to send or take a byte
constexpr std::size_t kBuffer = 64 * 1024;
} // namespace

void SocketExchange::wait(short what, int milliseconds) {
    pollfd wanted{socket_.get(), what, 0};
    int ready = 0;
    while ((ready = ::poll(&wanted, 1, milliseconds)) < 0 && errno == EINTR) {
    }
    if (ready <= 0)
        throw ClientGone();
}

std::size_t SocketExchange::receive(std::span<std::byte> into) {
    for (;;) {
        const ssize_t count = ::recv(socket_.get(), into.data(), into.size(), 0);
        if (count >= 0)
            return static_cast<std::size_t>(count);
        if (errno == EAGAIN)
            wait(POLLIN, kPatienceMs);
        else if (errno != EINTR)
            throw ClientGone();
    }
}

void SocketExchange::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count >= 0)
            bytes.remove_prefix(static_cast<std::size_t>(count));
        else if (errno == EAGAIN)
            wait(POLLOUT, kPatienceMs);
        else if (errno != EINTR)
            throw ClientGone();
    }
}

bool SocketExchange::fill() {
    std::array<std::byte, kBuffer> buffer;
    const std::size_t count = receive(buffer);
    in_.append(reinterpret_cast<const char*>(buffer.data()), count);
    return count > 0;
}

std::string SocketExchange::read_head(Request& request) {
    // The front's limits, with a margin.
    const http::HeadLimits limits{.head_bytes = 80 * 1024, .target_bytes = 9 * 1024, .fields = 300};
    http::HeadEnd end;
    http::HeadEnd::State state;
    while ((state = end.feed(in_, limits)) == http::HeadEnd::State::more)
        if (!fill())
            throw ClientGone();
    http::RequestHead head;
    const std::string bytes = in_.substr(0, end.size());
    if (state == http::HeadEnd::State::bad || http::parse_request_head(bytes, limits, head))
        throw ClientGone(); // the front forwards no such head
    request.method = head.method;
    for (const http::Field& field : head.fields)
        request.headers.emplace_back(field.name, field.value);
    head_only_ = head.method == "HEAD";
    expects_continue_ = head.expects_continue;
    body_ = http::Body(head.body);
    in_.erase(0, end.size());
    return std::string(head.path);
}

std::size_t SocketExchange::read(std::span<std::byte> into) {
    if (expects_continue_ && !begun_ && in_.empty() && !body_.done())
        send("HTTP/1.1 100 Continue\r\n\r\n");
    expects_continue_ = false;
    while (payload_.empty() && !body_.done()) {
        if (in_.empty() && !fill())
            throw ClientGone(); // the body was cut off
        const bool chunked = body_.kind() == http::BodyKind::chunked;
        const std::size_t taken = body_.feed(in_, chunked ? &payload_ : nullptr);
        if (body_.fault())
            throw ClientGone();
        if (!chunked)
            payload_.assign(in_, 0, taken);
        in_.erase(0, taken);
    }
    const std::size_t count = std::min(into.size(), payload_.size());
    std::memcpy(into.data(), payload_.data(), count);
    payload_.erase(0, count);
    return count;
}

void SocketExchange::begin(unsigned status, const Headers& headers, std::optional<std::uint64_t> length) {
    begun_ = true;
    std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, http::status_title(status));
    const auto safe = [](std::string_view value) { // a header of a function's reply must not end ours
        return value.find_first_of(std::string_view("\r\n\0", 3)) == value.npos;
    };
    for (const auto& [name, value] : headers)
        if (http::is_token(name) && safe(value))
            fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name, value);
    if (length && status != 204 && status != 304)
        fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", *length);
    if (status == 204 || status == 304)
        head_only_ = true;
    send(head + "Connection: close\r\n\r\n");
}

void SocketExchange::write(std::span<const std::byte> bytes) {
    if (!head_only_)
        send({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool SocketExchange::gone_within(int milliseconds) {
    pollfd wanted{socket_.get(), POLLRDHUP, 0};
    return ::poll(&wanted, 1, milliseconds) > 0 && (wanted.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

// The front takes a reply with a length as complete whatever happens to the socket, and itself discards what a client
// goes on sending. So such a client does not hold a thread.
void SocketExchange::finish() {
    ::shutdown(socket_.get(), SHUT_WR);
    std::array<std::byte, 4096> rest;
    while (::recv(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT) > 0) {
    }
}

} // namespace kvmserver::admin
