#include "src/admin/table.hpp"

#include "src/admin/handlers.hpp"

namespace kvmserver::admin {
namespace {

using enum store::Scope;

// `deploy` allows to run any program with the daemon's rights. A snapshot's bytes are the memory of a process, so
// `read` does not give access to them.
constexpr Endpoint kEndpoints[] = {
    {"GET", "/healthz", Of::nobody, kScopeRead, healthz, "whether the process answers"},
    {"GET", "/readyz", Of::nobody, kScopeRead, readyz, "whether KVM, store and disk are fit"},
    {"GET", "/ui", Of::nobody, kScopeRead, ui_page, "the web page; it asks for a token"},
    {"GET", "/ui/app.js", Of::nobody, kScopeRead, ui_script, "its script"},
    {"GET", "/ui/style.css", Of::nobody, kScopeRead, ui_style, "its style"},
    {"GET", "/metrics", Of::store, kScopeRead, metrics, "counters, as Prometheus reads them"},
    {"GET", "/v1", Of::any, kScopeRead, describe_api, "this list"},
    {"GET", "/v1/info", Of::holder, kScopeRead, info, "versions, store, and who the caller is"},
    {"GET", "/v1/live", Of::any, kScopeRead, live, "what runs now"},
    {"GET", "/v1/functions", Of::any, kScopeRead, list_functions, "the functions"},
    {"GET", "/v1/functions/{name}", Of::function, kScopeRead, describe_function, "one function"},
    {"PUT", "/v1/functions/{name}", Of::function, kScopeDeploy, put_function, "a new version"},
    {"DELETE", "/v1/functions/{name}", Of::function, kScopeDeploy, delete_function, "delete it"},
    {"GET", "/v1/functions/{name}/versions", Of::function, kScopeRead, list_versions, "its versions"},
    {"DELETE", "/v1/functions/{name}/versions/{version}", Of::function, kScopeDeploy, delete_version,
     "delete one that is not live"},
    {"POST", "/v1/functions/{name}/rollback", Of::function, kScopeDeploy, rollback, "an older version live"},
    {"PUT", "/v1/functions/{name}/traffic", Of::function, kScopeDeploy, put_traffic, "percentages of versions"},
    {"GET", "/v1/functions/{name}/env", Of::function, kScopeRead, list_env, "its environment"},
    {"PUT", "/v1/functions/{name}/env/{variable}", Of::function, kScopeDeploy, put_env, "set a variable"},
    {"DELETE", "/v1/functions/{name}/env/{variable}", Of::function, kScopeDeploy, delete_env, "unset it"},
    {"GET", "/v1/functions/{name}/secrets", Of::function, kScopeRead, list_secrets, "names of its secrets"},
    {"PUT", "/v1/functions/{name}/secrets/{secret}", Of::function, kScopeDeploy, put_secret, "set a secret"},
    {"DELETE", "/v1/functions/{name}/secrets/{secret}", Of::function, kScopeDeploy, delete_secret, "unset it"},
    {"POST", "/v1/functions/{name}/invoke", Of::function, kScopeInvoke, invoke, "send it a request"},
    {"GET", "/v1/functions/{name}/logs", Of::function, kScopeRead, logs, "what it printed"},
    {"GET", "/v1/logs", Of::store, kScopeRead, logs, "what all functions printed"},
    {"GET", "/v1/secrets", Of::store, kScopeRead, list_secrets, "names of the secrets for all functions"},
    {"PUT", "/v1/secrets/{secret}", Of::store, kScopeDeploy, put_secret, "set one for all functions"},
    {"DELETE", "/v1/secrets/{secret}", Of::store, kScopeDeploy, delete_secret, "unset it"},
    {"GET", "/v1/snapshots", Of::any, kScopeRead, list_snapshots, "the snapshots"},
    {"POST", "/v1/snapshots/missing", Of::any, kScopeDeploy, missing_pieces, "which pieces must be sent"},
    {"GET", "/v1/snapshots/{digest}", Of::any, kScopeDeploy, get_snapshot, "the file, or a range of it"},
    {"GET", "/v1/uploads", Of::store, kScopeAdmin, list_uploads, "uploads that are not complete"},
    {"POST", "/v1/uploads", Of::any, kScopeDeploy, create_upload, "begin an upload, or find it again"},
    {"HEAD", "/v1/uploads/{id}", Of::any, kScopeDeploy, head_upload, "where it stands"},
    {"PATCH", "/v1/uploads/{id}", Of::any, kScopeDeploy, append_upload, "more bytes"},
    {"DELETE", "/v1/uploads/{id}", Of::any, kScopeDeploy, delete_upload, "give it up"},
    {"POST", "/v1/gc", Of::store, kScopeAdmin, gc, "remove what nothing names"},
    {"POST", "/v1/verify", Of::store, kScopeAdmin, verify, "read the store back and mend it"},
    {"POST", "/v1/reload", Of::store, kScopeAdmin, reload, "read certificate and store again"},
    {"GET", "/v1/tokens", Of::store, kScopeAdmin, list_tokens, "the tokens, without themselves"},
    {"POST", "/v1/tokens", Of::store, kScopeAdmin, create_token, "a new token, shown once"},
    {"DELETE", "/v1/tokens/{token}", Of::store, kScopeAdmin, delete_token, "revoke it"},
};

// Matches a path against a pattern. Rows with fixed words come before rows with {parameters}.
bool fits(std::string_view pattern, const std::vector<std::string>& segments, Params& params) {
    params.clear();
    pattern.remove_prefix(1);
    for (const std::string& segment : segments) {
        if (pattern.empty())
            return false;
        const auto slash = pattern.find('/');
        const std::string_view word = pattern.substr(0, slash);
        pattern = slash == pattern.npos ? std::string_view() : pattern.substr(slash + 1);
        if (!word.starts_with('{')) {
            if (word != segment)
                return false;
        } else if (segment.empty()) {
            return false;
        } else {
            params.emplace(word.substr(1, word.size() - 2), segment);
        }
    }
    return pattern.empty();
}

} // namespace

std::span<const Endpoint> endpoints() { return kEndpoints; }

Match find_endpoint(std::string_view method, const std::vector<std::string>& segments) {
    Match match;
    Params params;
    for (const Endpoint& endpoint : kEndpoints) {
        if (!fits(endpoint.path, segments, params))
            continue;
        if (endpoint.method == method || (method == "HEAD" && endpoint.method == "GET")) {
            match.endpoint = &endpoint;
            match.params = params;
            return match;
        }
        match.allowed.append(match.allowed.empty() ? "" : ", ").append(endpoint.method);
    }
    return match;
}

} // namespace kvmserver::admin
