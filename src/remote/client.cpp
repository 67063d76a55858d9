#include "src/remote/client.hpp"

#include <fmt/format.h>
#include <strings.h>

#include "src/ops/exit_code.hpp"
#include "src/remote/transport.hpp"

namespace kvmserver::remote {
namespace {

using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

std::string host_of(const std::string& url) {
    const auto begin = url.find("://") + 3;
    std::string host = url.substr(begin, url.find('/', begin) - begin);
    if (host.starts_with('['))
        return host.substr(0, host.find(']') + 1);
    return host.substr(0, host.find(':'));
}

bool is_loopback(const std::string& host) {
    if (host == "localhost" || host == "[::1]")
        return true;
    return host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos;
}

} // namespace

void check_url(const std::string& url) {
    const bool secure = url.starts_with("https://");
    if (!secure && !url.starts_with("http://"))
        throw UserError(
            ExitCode::usage,
            fmt::format("'{}' is not a remote: write https://HOST:PORT, or a name of `kvmserver remote list`", url));
    const std::string host = host_of(url);
    if (url.find('@') != url.npos) // not repeated in the message: it may contain a password
        throw UserError(ExitCode::usage, "the remote's URL: write https://HOST:PORT, without a user or password");
    if (host.empty())
        throw UserError(ExitCode::usage, fmt::format("'{}': write https://HOST:PORT", url));
    if (const auto path = url.find('/', url.find("://") + 3); path != url.npos && path + 1 != url.size())
        throw UserError(ExitCode::usage, fmt::format("'{}': give the URL without a path", url));
    if (!secure && !is_loopback(host))
        throw UserError(ExitCode::usage, fmt::format("{}: the token would travel in the clear: use https://", url));
}

std::string_view Reply::header(std::string_view name) const {
    for (const auto& [key, value] : headers)
        if (key.size() == name.size() && ::strncasecmp(key.data(), name.data(), name.size()) == 0)
            return value;
    return {};
}

Problem::Problem(ExitCode exit, const std::string& message, unsigned status, std::string code, json document)
    : UserError(exit, message), status_(status), name_(std::move(code)), document_(std::move(document)) {}

void throw_problem(const Reply& reply, const std::string& server) {
    json document = json::parse(reply.body, nullptr, false);
    if (!document.is_object() || !document.contains("detail") || !document["detail"].is_string())
        throw Problem(ops::exit_code_of_reply(reply.status, ""),
                      fmt::format("{} answers with status {}", server, reply.status), reply.status, "", json::object());
    const auto text = [&](const char* name) {
        const auto at = document.find(name);
        return at != document.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    const std::string code = text("code"), hint = text("hint");
    std::string message = text("detail");
    if ((reply.status == 401 || reply.status == 403) && !hint.empty())
        message = fmt::format("{}: {}: {}", server, message, hint);
    else if (reply.status == 507 && !hint.empty())
        message = fmt::format("{}; {}", message, hint);
    throw Problem(ops::exit_code_of_reply(reply.status, code), message, reply.status, code, std::move(document));
}

Client::Client(Server server) : server_(std::move(server)) {
    if (server_.socket.empty())
        check_url(server_.url);
    else
        local_ = socket_transport(server_);
}

Client::~Client() = default;

std::string Client::other_host() const {
    const std::string host = server_.socket.empty() ? host_of(server_.url) : "";
    return is_loopback(host) ? "" : host;
}

Reply Client::ask(const Ask& ask) {
    if (local_ && !ask.source)
        return local_->ask(ask);
    if (!curl_)
        curl_ = curl_transport(server_);
    return curl_->ask(ask);
}

json Client::call(const std::string& method, const std::string& target, const json& body, const Headers& headers) {
    const Reply reply = ask({.method = method,
                             .target = target,
                             .headers = headers,
                             .body = body.is_null() ? "" : body.dump(),
                             .source = nullptr,
                             .body_bytes = 0,
                             .sink = nullptr});
    if (reply.status >= 400)
        throw_problem(reply, shown());
    if (reply.body.empty())
        return nullptr;
    json document = json::parse(reply.body, nullptr, false);
    if (document.is_discarded() || reply.status < 200 || reply.status >= 300)
        throw UserError(ExitCode::failure,
                        fmt::format("{} does not answer as the API of kvmserver (status {})", shown(), reply.status));
    return document;
}

} // namespace kvmserver::remote
