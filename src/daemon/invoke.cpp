// Requests that the daemon makes itself: they take the same path as requests from outside.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "src/common/random_hex.hpp"
#include "src/daemon/own_requests.hpp"
#include "src/daemon/service.hpp"
#include "src/daemon/sticky.hpp"
#include "src/http/body.hpp"
#include "src/http/ids.hpp"
#include "src/http/reply_head.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t us_between(Clock::time_point begin, Clock::time_point end) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(end - begin).count());
}

std::uint64_t us_since(Clock::time_point then) { return us_between(then, Clock::now()); }

void check(const InvokeRequest& request) {
    const auto fits = [](std::string_view text, bool spaces) {
        return std::all_of(text.begin(), text.end(),
                           [&](unsigned char c) { return c >= (spaces ? 0x20 : 0x21) && c != 0x7f; });
    };
    if (!http::is_token(request.method))
        throw store::BadValue(fmt::format("'{}' is no HTTP method", request.method));
    if (!request.path.starts_with('/') || !fits(request.path, false))
        throw store::BadValue("the path must begin with / and hold no spaces");
    for (const auto& [name, value] : request.headers)
        if (!http::is_token(name) || !fits(value, true))
            throw store::BadValue(fmt::format("the header '{}' is malformed", name));
}

std::string bytes_of(const InvokeRequest& request) {
    std::string out = fmt::format("{} {} HTTP/1.1\r\n", request.method, request.path);
    bool host = false;
    for (const auto& [name, value] : request.headers) {
        if (http::equal_nocase(name, "content-length") || http::equal_nocase(name, "connection") ||
            http::equal_nocase(name, "transfer-encoding"))
            continue;
        host |= http::equal_nocase(name, "host");
        out += fmt::format("{}: {}\r\n", name, value);
    }
    if (!host)
        out += fmt::format("Host: {}.localhost\r\n", request.function);
    if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH")
        out += fmt::format("Content-Length: {}\r\n", request.body.size());
    return out + "Connection: close\r\n\r\n" + request.body;
}

// Sends `bytes` while it reads the reply until the end. Returns "" or a problem's code.
const char* exchange(int fd, std::string_view bytes, std::uint64_t most, Clock::time_point deadline,
                     std::string& reply) {
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd wanted{fd, static_cast<short>(bytes.empty() ? POLLIN : POLLIN | POLLOUT), 0};
        const int n = left > 0 ? ::poll(&wanted, 1, static_cast<int>(std::min<long long>(left, 1'000'000))) : 0;
        if (n < 0 && errno != EINTR)
            return "internal";
        if (left <= 0)
            return "request-timeout";
        if (wanted.revents & POLLOUT) {
            if (const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); sent > 0)
                bytes.remove_prefix(static_cast<std::size_t>(sent));
            else if (sent < 0 && errno != EAGAIN && errno != EINTR)
                bytes = {}; // the program reads no more, but its reply counts
        }
        if (wanted.revents & (POLLIN | POLLHUP | POLLERR)) {
            char buffer[65536];
            const ssize_t got = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
                return "";
            if (got > 0)
                reply.append(buffer, static_cast<std::size_t>(got));
            if (reply.size() > most)
                return "reply-too-large";
        }
    }
}

request::Problem no_reply(const RequestLease& lease) {
    request::Problem problem = request::problem_for(request::Outcome::bad_reply);
    problem.hint = "what the program printed: `" + lease.where_to_look() + "`";
    return problem;
}

// Returns false if it is not a complete HTTP reply.
bool understand(std::string_view bytes, bool head_request, InvokeReply& reply) {
    for (;;) {
        const auto end = bytes.find("\r\n\r\n");
        http::ReplyHead head;
        if (end == bytes.npos ||
            http::parse_reply_head(bytes.substr(0, end + 4), {}, {.head_request = head_request}, head))
            return false;
        bytes.remove_prefix(end + 4);
        if (head.interim())
            continue;
        reply.status = head.status;
        reply.reason = head.status_and_reason.size() > 4 ? head.status_and_reason.substr(4) : std::string_view();
        for (const http::Field& field : head.fields)
            if (!http::equal_nocase(field.name, "connection") && !http::equal_nocase(field.name, "transfer-encoding") &&
                !http::equal_nocase(field.name, "content-length"))
                reply.headers.emplace_back(field.name, field.value);
        http::Body body(head.body);
        const bool chunked = head.body.kind == http::BodyKind::chunked;
        const std::size_t used = body.feed(bytes, chunked ? &reply.body : nullptr);
        if (!chunked)
            reply.body = bytes.substr(0, used);
        return head.body.kind == http::BodyKind::until_close || body.done();
    }
}

} // namespace

std::shared_ptr<FunctionVersion> Service::version_for(const InvokeRequest& request) {
    if (request.version)
        return table_.version(request.function, *request.version);
    const store::FunctionDetails details = store::Functions(store_).describe(request.function);
    if (details.live.empty())
        throw store::NotFound(fmt::format("no version of {0} is live: `kvmserver rollback {0} VERSION` makes one live",
                                          request.function));
    std::uint64_t random = 0;
    for (const char c : random_hex(4))
        random = random * 16 + static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    unsigned at = static_cast<unsigned>(random % 100);
    for (const store::Live& live : details.live) {
        if (at < live.percent)
            return table_.version(request.function, live.version);
        at -= live.percent;
    }
    return table_.version(request.function, details.live.back().version);
}

InvokeReply Service::invoke(const InvokeRequest& request) {
    check(request);
    if (away_too_long()) {
        const request::Problem problem = problem_for(request::Outcome::cluster_away);
        InvokeReply refused;
        refused.status = problem.status;
        refused.problem_code = problem.code;
        refused.problem_detail = problem.detail;
        refused.problem_hint = problem.hint;
        return refused;
    }
    read_table(false);
    std::shared_ptr<FunctionVersion> version = version_for(request);
    if (const auto& tcp = version->facts().given->tcp)
        throw store::Conflict(
            tcp->by_name
                ? fmt::format("{} is no HTTP function but protocol = \"tls-passthrough\": connect to one of its "
                              "routes with TLS",
                              version->facts().name())
                : fmt::format("{} is no HTTP function but protocol = \"tcp\": connect to {}", version->facts().name(),
                              tcp->listen.front().text()));
    if (version->facts().machines > 1) { // as a client of the public listener that keeps no cookies
        std::vector<http::Field> fields;
        for (const auto& [name, value] : request.headers)
            fields.push_back({{}, name, value});
        version = choose_machine(version, {fields, "/"}).machine;
    }
    const auto begin = Clock::now();
    const auto deadline = begin + std::chrono::microseconds(static_cast<std::int64_t>(request.timeout_seconds * 1e6));
    InvokeReply reply;
    reply.version = version->facts().version;
    reply.request_id = http::Ids().request_id();
    const OwnRequests::Running running(own_requests_);
    const auto& waiter = running.request;
    const std::string sent = bytes_of(request);
    const std::unique_ptr<RequestLease> lease =
        pool_.submit(version, {.request_id = reply.request_id, .client_ip = "127.0.0.1", .opening = sent}, waiter);
    std::string bytes;
    AccessRecord record;
    using request::Outcome;
    Outcome outcome = Outcome::ok;
    const auto fail = [&](const request::Problem& why) {
        reply.status = why.status;
        reply.problem_code = why.code;
        reply.problem_detail = why.detail;
        reply.problem_hint = why.hint;
        outcome = why.outcome;
    };
    const request::Problem stopping = request::problem_for(Outcome::stopped);
    if (!waiter->wait_until(deadline)) {
        if (waiter->cut_off())
            fail(stopping);
        else
            fail(
                {Outcome::queue_timeout, 504, "queue-timeout", "no machine became free in time", "a longer --timeout"});
    } else if (waiter->problem) {
        fail(*waiter->problem);
    } else {
        record.bytes_in = sent.size();
        std::string code;
        const std::uint64_t most = request.max_bytes + 65536;
        if (waiter->reply) {
            bytes = std::move(*waiter->reply);
            code = bytes.size() > most ? "reply-too-large" : "";
        } else {
            code = exchange(waiter->socket(), waiter->opening_delivered ? std::string_view() : sent, most, deadline,
                            bytes);
        }
        record.bytes_out = bytes.size();
        if (waiter->cut_off())
            fail(stopping);
        else if (code == "request-timeout")
            fail({Outcome::program_silent, 504, code, "the program did not answer in time", "a longer --timeout"});
        else if (code == "reply-too-large")
            fail({Outcome::bad_reply, 502, code, "the reply is larger than what may be passed on here",
                  "ask the public address"});
        else if (!code.empty() || !understand(bytes, request.method == "HEAD", reply))
            fail(lease->failure().value_or(no_reply(*lease)));
        waiter->close();
    }
    reply.total_us = us_since(begin);
    const Clock::time_point began = Clock::time_point(std::chrono::nanoseconds(lease->began_ns()));
    reply.queue_us = began > begin ? std::min(reply.total_us, us_between(begin, began)) : reply.total_us;
    reply.exec_us = reply.total_us - reply.queue_us;
    record.ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    record.request_id = reply.request_id;
    record.client_ip = "admin";
    record.method = request.method;
    record.path = request.path;
    record.status = reply.status;
    record.outcome = request::log_word(outcome);
    record.queue_us = reply.queue_us;
    record.exec_us = reply.exec_us;
    record.total_us = reply.total_us;
    const std::shared_ptr<Request>& served = lease->request();
    count(record, outcome, served.get());
    log(record, outcome, *served, request.method, request.path);
    reply.cold = served->cold;
    reply.restore_us = served->restore_us;
    pool_.record(served, std::move(record));
    return reply;
}

} // namespace kvmserver::daemon
