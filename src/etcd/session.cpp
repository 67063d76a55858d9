#include "src/etcd/session.hpp"

#include <fmt/format.h>

#include <utility>

namespace kvmserver::etcd {
namespace {

constexpr long kSuccess = 200;
constexpr const char* kAwayHint = "look whether etcd runs there and is reached";

// Of streams, which have a status before they have an error.
bool failed(const Reply& reply) { return reply.status != kSuccess || reply.body.starts_with("{\"error\""); }

std::string unreached(const Reply& reply) { return fmt::format("{}: {}", reply.why, kAwayHint); }

} // namespace

Session::Session(Address address, Credentials credentials, const Limits& limits)
    : address_(std::move(address)), credentials_(std::move(credentials)), limits_(limits) {}

Request Session::request(const std::string& endpoint, const std::string& path, const Json& body, Repeat repeat,
                         const std::string& token) const {
    return {.url = endpoint + path,
            .body = body.dump(),
            .token = token,
            .ca_file = address_.ca_file,
            .repeatable = repeat == Repeat::yes};
}

std::string Session::endpoint() const { return address_.endpoints[current_]; }

void Session::leave(const std::string& endpoint) {
    std::size_t current = current_;
    if (address_.endpoints[current] == endpoint) // another thread may have left it
        current_.compare_exchange_strong(current, (current + 1) % address_.endpoints.size());
}

std::string Session::token() const {
    const std::lock_guard lock(mutex_);
    return token_;
}

Request Session::login_request(const std::string& endpoint) const {
    const Json body{{"name", credentials_.user}, {"password", credentials_.password}};
    return request(endpoint, "/v3/auth/authenticate", body, Repeat::yes, "");
}

std::string Session::take_login(const std::string& endpoint, const Reply& reply) {
    if (reply.status == 0)
        throw Away(fmt::format("etcd at {}: {}", endpoint, unreached(reply)), false);
    if (reply.status != kSuccess)
        fail(endpoint, error_in(reply.body, reply.status), Repeat::yes);
    std::string token;
    try {
        token = text_in(parse_reply(reply.body), "token");
    } catch (const BadReply& bad) {
        throw Refused(tinykvm::ExitCode::failure,
                      fmt::format("etcd at {}: its login answers {}", endpoint, bad.what()));
    }
    // It becomes a line of a header.
    if (token.empty() || token.find_first_of("\r\n") != token.npos)
        throw Refused(tinykvm::ExitCode::failure, fmt::format("etcd at {}: its login gives no token", endpoint));
    const std::lock_guard lock(mutex_);
    return token_ = token;
}

void Session::fail(const std::string& endpoint, const ErrorReply& error, Repeat repeat) const {
    if (error.is_away())
        throw Away(fmt::format("etcd at {}: {}: look whether most of its members run and reach each other", endpoint,
                               error.text),
                   repeat == Repeat::no && !error.is_not_done());
    if (!error.is_about_permission())
        throw Refused(tinykvm::ExitCode::failure, fmt::format("etcd at {}: {}", endpoint, error.text));
    throw Refused(tinykvm::ExitCode::not_permitted,
                  has_credentials()
                      ? fmt::format("etcd at {}: {}: check the credentials, and that the role of user {} may read and "
                                    "write keys that begin with {}",
                                    endpoint, error.text, credentials_.user, address_.prefix)
                      : fmt::format("etcd at {}: {}: it wants a user and a password", endpoint, error.text));
}

Reply Session::send(Request request) {
    std::unique_ptr<Transfer> transfer;
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            transfer = std::move(idle_.back());
            idle_.pop_back();
        }
    }
    if (!transfer)
        transfer = std::make_unique<Transfer>(limits_);
    Reply reply = transfer->perform(std::move(request));
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(transfer));
    return reply;
}

Json Session::ask(const std::string& path, const Json& body, Repeat repeat) {
    const std::size_t count = address_.endpoints.size(), first = current_;
    std::string last;
    for (std::size_t tried = 0; tried < count; ++tried) {
        const std::size_t index = (first + tried) % count;
        const std::string& at = address_.endpoints[index];
        Reply reply;
        for (bool logged_in = false;; logged_in = true) {
            reply = send(request(at, path, body, repeat, token()));
            if (reply.status == 0 || !failed(reply) || logged_in || !has_credentials() ||
                !error_in(reply.body, reply.status).wants_login())
                break;
            Reply login = send(login_request(at));
            if (login.status == 0) { // what we asked was refused before it
                reply = std::move(login);
                reply.sent = false;
                break;
            }
            take_login(at, login);
        }
        if (reply.status == 0) {
            last = fmt::format("etcd at {}: {}", at, unreached(reply));
            if (reply.sent && repeat == Repeat::no)
                throw Away(last, true);
            continue;
        }
        if (failed(reply)) {
            const ErrorReply error = error_in(reply.body, reply.status);
            try {
                fail(at, error, repeat);
            } catch (const Away& away) {
                leave(at);
                if (away.maybe_done)
                    throw;
                last = away.what();
                continue;
            }
        }
        try {
            if (reply.too_long)
                throw BadReply(fmt::format("more than {} bytes", limits_.reply_bytes));
            Json json = parse_reply(reply.body);
            current_ = index;
            return json;
        } catch (const BadReply& bad) {
            const std::string what = fmt::format("etcd at {}: it answers {} to {}", at, bad.what(), path);
            if (repeat == Repeat::no)
                throw Away(what, true);
            throw Refused(tinykvm::ExitCode::failure, what);
        }
    }
    throw Away(last, false);
}

} // namespace kvmserver::etcd
