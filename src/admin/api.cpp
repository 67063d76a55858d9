#include "src/admin/api.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "src/admin/call.hpp"
#include "src/daemon/control.hpp"
#include "src/http/fields.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/gc.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::admin {
namespace {

// Decodes the "USER:PASSWORD" of Basic authentication (RFC 7617). Returns nothing if it is not base64.
std::optional<std::string> from_base64(std::string_view text) {
    std::string out;
    std::uint32_t bits = 0;
    int count = 0;
    while (text.ends_with('='))
        text.remove_suffix(1);
    for (const char c : text) {
        constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const auto value = alphabet.find(c);
        if (value == alphabet.npos)
            return std::nullopt;
        bits = bits << 6 | static_cast<std::uint32_t>(value);
        if ((count += 6) >= 8)
            out += static_cast<char>(bits >> (count -= 8) & 0xff);
    }
    return out;
}

// The token of an Authorization header: of Bearer, or the password of Basic (for .netrc).
std::optional<std::string> token_of(std::string_view header) {
    const auto space = header.find(' ');
    if (space == header.npos)
        return std::nullopt;
    const std::string_view scheme = header.substr(0, space), value = http::trimmed(header.substr(space + 1));
    if (http::equal_nocase(scheme, "Bearer"))
        return std::string(value);
    if (!http::equal_nocase(scheme, "Basic"))
        return std::nullopt;
    const auto pair = from_base64(value);
    const auto colon = pair ? pair->find(':') : std::string::npos;
    return colon == std::string::npos ? std::nullopt : std::optional(pair->substr(colon + 1));
}

[[noreturn]] void unauthorized(const char* code, const char* detail, const char* challenge) {
    throw Refused(401, code, detail, "give a token: kvmserver login, or KVMSERVER_TOKEN",
                  {{"WWW-Authenticate", challenge}});
}

bool may(const Principal& who, const Endpoint& endpoint, const Params& params) {
    switch (endpoint.of) {
    case Of::nobody:
    case Of::holder: return true;
    case Of::any: return who.has(endpoint.scope);
    case Of::function: return who.allows(endpoint.scope, params.at("name"));
    case Of::store: return who.allows(endpoint.scope, "");
    }
    return false;
}

void require(const Principal& who, const Endpoint& endpoint, const Params& params) {
    if (may(who, endpoint, params))
        return;
    const std::string scope = store::scope_names(endpoint.scope).front();
    if (who.has(endpoint.scope))
        throw Refused(
            403, "wrong-prefix",
            endpoint.of == Of::function
                ? fmt::format("this token is for functions that begin with {} only", who.prefix())
                : fmt::format("this is not for a token that is limited to functions that begin with {}", who.prefix()),
            "use another token");
    throw Refused(403, "scope-too-small", fmt::format("this token has not the scope {}", scope),
                  fmt::format("kvmserver token create NAME --scope {}", scope));
}

void require_known_query(const Request& request, const Endpoint& endpoint) {
    const auto known = names_in(endpoint.interface.query);
    for (const auto& [name, value] : request.query)
        if (std::ranges::find(known, name) == known.end())
            throw store::BadValue(fmt::format("the query's '{}' is not known here", tinykvm::brief(name)));
}

// An exchange with this process itself: collects the reply.
class Inner final : public Exchange {
public:
    explicit Inner(std::string body) : body_(std::move(body)) {}
    std::size_t read(std::span<std::byte> into) override {
        const std::size_t count = std::min(into.size(), body_.size() - at_);
        std::copy_n(reinterpret_cast<const std::byte*>(body_.data()) + at_, count, into.begin());
        at_ += count;
        return count;
    }
    void begin(unsigned, const Headers&, std::optional<std::uint64_t>) override { begun_ = true; }
    void write(std::span<const std::byte> bytes) override {
        reply_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    bool gone_within(int) override { return false; }
    bool begun() const override { return begun_; }
    const std::string& reply() const { return reply_; }

private:
    std::string body_, reply_;
    std::size_t at_ = 0;
    bool begun_ = false;
};

} // namespace

store::Store& Api::store() {
    if (store::Store* opened = source_.get())
        return *opened;
    throw store::NotFound(
        fmt::format("there is no store in {}: `kvmserver deploy` makes one", source_.path().string()));
}

daemon::Control& Api::control() {
    if (!options_.control)
        throw Refused(503, "not-serving", fmt::format("no daemon serves {}", source_.path().string()),
                      "start one: kvmserver serve; KVMSERVER_STORE or --store names another store");
    return *options_.control;
}

void Api::changed() {
    if (options_.control)
        options_.control->refresh();
}

void Api::superseded(const Digest& snapshot) {
    if (options_.control)
        options_.control->superseded(snapshot);
    else
        store::remove_snapshot(store(), snapshot);
}

Api::Api(StoreSource& source, ApiOptions options)
    : source_(source), options_(std::move(options)), staged_(options_.staged_for), uploads_(options_.uploads),
      migrations_(*this, options_.control != nullptr) {
    if (!options_.examinations)
        options_.examinations = std::make_shared<daemon::Examinations>(
            daemon::Examiner{options_.executable, options_.jail.mode}, daemon::ExaminationLimits{});
}

Api::Following::Following(Api& api, bool local) : count_(api.followers_[local]) {
    if (count_++ >= api.options_.max_followers) {
        --count_;
        throw Refused(503, "busy", fmt::format("{} follow logs already", api.options_.max_followers),
                      "try again when one of them has ended, or without follow");
    }
}

Principal Api::authenticate(const Request& request) {
    if (request.in_process)
        return Principal::local(::geteuid());
    const std::string_view header = request.header("Authorization");
    // A given token decides, even for local users who need none: that lets them test it.
    if (header.empty()) {
        if (request.peer && (*request.peer == ::geteuid() || *request.peer == 0))
            return Principal::local(*request.peer);
        if (request.peer)
            throw Refused(403, "not-permitted", fmt::format("uid {} is neither the server's nor root's", *request.peer),
                          "use a token, or the server's user");
        unauthorized("no-token", "this needs a token", "Bearer");
    }
    const auto token = token_of(header);
    auto info = token ? store::Tokens(store()).check(*token) : std::nullopt;
    if (!info)
        unauthorized("wrong-token", "the token is unknown, revoked or has expired", "Bearer error=\"invalid_token\"");
    return Principal::of(std::move(*info));
}

void Api::dispatch(Request& request, Exchange& exchange) {
    const Match match = find_endpoint(request.method, request.segments);
    if (!match.endpoint && !match.allowed.empty())
        throw Refused(405, "wrong-method", fmt::format("this path takes {} only", match.allowed), "",
                      {{"Allow", match.allowed}});
    if (!match.endpoint)
        throw Refused(404, "no-endpoint", "there is no such path", "GET /v1 lists what there is; /ui is for browsers");
    if (match.endpoint->of == Of::nobody) {
        require_known_query(request, *match.endpoint);
        const Principal nobody = Principal::of({});
        Call call(*this, request, nobody, match.params, exchange);
        return match.endpoint->handler(call);
    }
    const Principal who = authenticate(request);
    require(who, *match.endpoint, match.params);
    require_known_query(request, *match.endpoint);
    Call call(*this, request, who, match.params, exchange);
    try {
        match.endpoint->handler(call);
    } catch (const store::RouteTaken& error) {
        if (who.allows(store::kScopeRead, error.owner()))
            throw;
        throw Refused(
            409, "route-taken",
            fmt::format("route {} belongs to a function that this token is not for", tinykvm::brief(error.route())),
            "choose another route");
    }
}

void Api::serve(Request& request, std::string_view target, Exchange& exchange) {
    try {
        set_target(request, target);
        dispatch(request, exchange);
    } catch (const ClientGone&) {
        throw;
    } catch (...) {
        ProblemReply problem = problem_of(std::current_exception(), request.id);
        if (exchange.begun()) // too late for a problem: close the connection early
            throw ClientGone();
        problem.headers.emplace_back("Content-Type", "application/problem+json");
        problem.headers.emplace_back("Cache-Control", "no-store");
        const std::string text = problem.document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
        exchange.begin(problem.status, problem.headers, text.size());
        exchange.write(std::as_bytes(std::span(text)));
    }
}

json Api::run(const std::string& method, const std::string& target, const json& body, const Headers& headers) {
    Inner exchange(body.is_null() ? "" : body.dump());
    run(method, target, exchange, headers);
    return exchange.reply().empty() ? json() : json::parse(exchange.reply());
}

void Api::run(const std::string& method, const std::string& target, Exchange& exchange, const Headers& headers) {
    Request request;
    request.method = method;
    request.headers = headers;
    request.in_process = true;
    set_target(request, target);
    dispatch(request, exchange);
}

} // namespace kvmserver::admin
