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

void Session::leave(std::size_t endpoint) {
    std::size_t expected = endpoint; // another thread may have left it
    current_.compare_exchange_strong(expected, (endpoint + 1) % address_.endpoints.size());
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

// Logs in if etcd wants it.
Reply Session::send_as_user(const std::string& endpoint, const std::string& path, const Json& body, Repeat repeat) {
    Reply reply = send(request(endpoint, path, body, repeat, token()));
    if (!has_credentials() || reply.status == 0 || !failed(reply) || !error_in(reply.body, reply.status).wants_login())
        return reply;
    Reply login = send(login_request(endpoint));
    if (login.status == 0) { // what we asked was refused before it
        login.sent = false;
        return login;
    }
    return send(request(endpoint, path, body, repeat, take_login(endpoint, login)));
}

Json Session::json_of(const std::string& endpoint, const std::string& path, const Reply& reply, Repeat repeat) const {
    if (reply.status == 0)
        throw Away(fmt::format("etcd at {}: {}", endpoint, unreached(reply)), reply.sent && repeat == Repeat::no);
    if (failed(reply))
        fail(endpoint, error_in(reply.body, reply.status), repeat);
    try {
        if (reply.too_long)
            throw BadReply(fmt::format("more than {} bytes", limits_.reply_bytes));
        return parse_reply(reply.body);
    } catch (const BadReply& bad) {
        const std::string what = fmt::format("etcd at {}: it answers {} to {}", endpoint, bad.what(), path);
        if (repeat == Repeat::no)
            throw Away(what, true);
        throw Refused(tinykvm::ExitCode::failure, what);
    }
}

Json Session::ask(const std::string& path, const Json& body, Repeat repeat) {
    const std::size_t count = address_.endpoints.size(), first = current_;
    for (std::size_t tried = 1;; ++tried) {
        const std::size_t index = (first + tried - 1) % count;
        const std::string& endpoint = address_.endpoints[index];
        try {
            Json json = json_of(endpoint, path, send_as_user(endpoint, path, body, repeat), repeat);
            current_ = index;
            return json;
        } catch (const Away& away) {
            leave(index);
            if (away.maybe_done || tried == count)
                throw;
        }
    }
}

} // namespace kvmserver::etcd
