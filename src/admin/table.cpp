#include "src/admin/table.hpp"

#include "src/admin/handlers.hpp"

namespace kvmserver::admin {
namespace {

using enum store::Scope;

// `deploy` allows to run any program with the daemon's rights. A snapshot's bytes are the memory of a process, so
// `read` does not give access to them.
// clang-format off
constexpr Endpoint kEndpoints[] = {
    {"GET", "/healthz", Of::nobody, kScopeRead, healthz, "whether the process answers",
     {.id = "healthz", .replies = {{200, "Text"}}}},
    {"GET", "/readyz", Of::nobody, kScopeRead, readyz, "whether KVM, store and disk are fit",
     {.id = "readyz", .replies = {{200, "Readiness"}, {503, "Readiness"}}}},
    {"GET", "/", Of::nobody, kScopeRead, ui_page, "the web page, as at /ui",
     {.id = "root_page", .replies = {{200, "Page"}}}},
    {"GET", "/ui", Of::nobody, kScopeRead, ui_page, "the web page; it asks for a token",
     {.id = "ui_page", .replies = {{200, "Page"}}}},
    {"GET", "/ui/{file}", Of::nobody, kScopeRead, ui_file, "its scripts and its style",
     {.id = "ui_file", .replies = {{200, "PageFile"}}, .problems = {"not-found"}}},
    {"GET", "/metrics", Of::store, kScopeRead, metrics, "counters, as Prometheus reads them",
     {.id = "metrics", .replies = {{200, "Metrics"}}, .problems = {"not-serving"}}},
    {"GET", "/v1", Of::any, kScopeRead, describe_api, "this list",
     {.id = "list_endpoints", .replies = {{200, "Endpoints"}}}},
    {"GET", "/v1/openapi.json", Of::nobody, kScopeRead, openapi, "this API, as OpenAPI 3.1",
     {.id = "openapi", .replies = {{200, "Document"}}}},
    {"GET", "/v1/info", Of::holder, kScopeRead, info, "versions, store, and who the caller is",
     {.id = "info", .replies = {{200, "Info"}}}},
    {"GET", "/v1/live", Of::any, kScopeRead, live, "what runs now",
     {.id = "list_live", .query = {"running", "after", "until"}, .replies = {{200, "Running"}},
      .problems = {"not-serving"}}},
    {"GET", "/v1/functions", Of::any, kScopeRead, list_functions, "the functions",
     {.id = "list_functions", .query = {"limit", "after"}, .replies = {{200, "Functions"}}}},
    {"GET", "/v1/functions/{name}", Of::function, kScopeRead, describe_function, "one function",
     {.id = "describe_function", .replies = {{200, "FunctionDetails", {"ETag"}}}}},
    {"PUT", "/v1/functions/{name}", Of::function, kScopeDeploy, put_function, "a new version",
     {.id = "put_function", .query = {"dry_run", "clamp"}, .headers = {"If-Match", "If-None-Match"},
      .body = "NewVersion", .replies = {{200, "DeployedOrChange", {"ETag"}}, {201, "Deployed", {"ETag"}}},
      .problems = {"above-ceiling", "route-not-granted", "secret-not-granted", "storage-not-granted", "conflict",
        "route-taken", "changed", "unhealthy", "bad-snapshot", "no-kvm", "timed-out", "chunks-away"}}},
    {"DELETE", "/v1/functions/{name}", Of::function, kScopeDeploy, delete_function, "delete it",
     {.id = "delete_function", .headers = {"If-Match"}, .replies = {{200, "DeletedFunction"}},
      .problems = {"changed"}}},
    {"GET", "/v1/functions/{name}/versions", Of::function, kScopeRead, list_versions, "its versions",
     {.id = "list_versions", .replies = {{200, "Versions"}}}},
    {"GET", "/v1/functions/{name}/history", Of::function, kScopeRead, list_history, "who changed it, when and why",
     {.id = "list_history", .replies = {{200, "History"}}}},
    {"GET", "/v1/functions/{name}/measurements", Of::function, kScopeRead, list_measurements,
     "requests, errors and latency over time",
     {.id = "list_measurements", .query = {"span"}, .replies = {{200, "Measurements"}}, .problems = {"not-serving"}}},
    {"GET", "/v1/measurements", Of::any, kScopeRead, list_all_measurements, "requests and errors of all over time",
     {.id = "list_all_measurements", .query = {"span"}, .replies = {{200, "MeasurementsOfAll"}},
      .problems = {"not-serving"}}},
    {"DELETE", "/v1/functions/{name}/versions/{version}", Of::function, kScopeDeploy, delete_version,
     "delete one that is not live",
     {.id = "delete_version", .headers = {"If-Match"}, .replies = {{200, "DeletedVersion"}},
      .problems = {"conflict", "changed"}}},
    {"PUT", "/v1/functions/{name}/versions/{version}/snapshot", Of::function, kScopeDeploy, put_version_snapshot,
     "its program, warmed up", {.id = "put_version_snapshot", .body = "WarmedSnapshot",
      .replies = {{200, "WarmedVersion"}}, .problems = {"above-ceiling", "conflict", "unhealthy", "bad-snapshot",
        "no-kvm", "timed-out", "chunks-away"}}},
    {"POST", "/v1/functions/{name}/rollback", Of::function, kScopeDeploy, rollback, "an older version live",
     {.id = "rollback", .query = {"dry_run"}, .headers = {"If-Match"}, .body = "RollbackTarget",
      .replies = {{200, "Switched", {"ETag"}}}, .problems = {"conflict", "changed"}}},
    {"PUT", "/v1/functions/{name}/traffic", Of::function, kScopeDeploy, put_traffic, "percentages of versions",
     {.id = "put_traffic", .query = {"dry_run"}, .headers = {"If-Match"}, .body = "Traffic",
      .replies = {{200, "Switched", {"ETag"}}}, .problems = {"conflict", "changed"}}},
    {"GET", "/v1/functions/{name}/env", Of::function, kScopeRead, list_env, "its environment",
     {.id = "list_env", .replies = {{200, "FunctionEnv", {"ETag"}}}}},
    {"PUT", "/v1/functions/{name}/env/{variable}", Of::function, kScopeDeploy, put_env, "set a variable",
     {.id = "put_env", .headers = {"If-Match"}, .body = "Value", .replies = {{200, "ValueSet"}},
      .problems = {"changed"}}},
    {"DELETE", "/v1/functions/{name}/env/{variable}", Of::function, kScopeDeploy, delete_env, "unset it",
     {.id = "delete_env", .headers = {"If-Match"}, .replies = {{200, "ValueUnset"}},
      .problems = {"changed"}}},
    {"GET", "/v1/functions/{name}/secrets", Of::function, kScopeRead, list_secrets, "names of its secrets",
     {.id = "list_secrets", .replies = {{200, "Secrets"}}}},
    {"PUT", "/v1/functions/{name}/secrets/{secret}", Of::function, kScopeDeploy, put_secret, "set a secret",
     {.id = "put_secret", .headers = {"If-Match"}, .body = "Value", .replies = {{200, "ValueSet"}},
      .problems = {"changed"}}},
    {"DELETE", "/v1/functions/{name}/secrets/{secret}", Of::function, kScopeDeploy, delete_secret, "unset it",
     {.id = "delete_secret", .headers = {"If-Match"}, .replies = {{200, "ValueUnset"}},
      .problems = {"changed"}}},
    {"POST", "/v1/functions/{name}/suspend", Of::function, kScopeDeploy, suspend, "save its machines' states",
     {.id = "suspend", .replies = {{200, "Machines"}}, .problems = {"not-serving", "conflict", "timed-out"}}},
    {"POST", "/v1/functions/{name}/resume", Of::function, kScopeDeploy, resume, "start its machines again",
     {.id = "resume", .replies = {{200, "Machines"}}, .problems = {"not-serving", "conflict"}}},
    {"POST", "/v1/functions/{name}/migrate", Of::store, kScopeAdmin, migrate, "give it to another daemon",
     {.id = "migrate", .body = "Destination", .replies = {{200, "Migrated"}},
      .problems = {"not-serving", "conflict", "changed", "timed-out", "chunks-away"}}},
    {"PUT", "/v1/functions/{name}/versions/{version}/state", Of::function, kScopeDeploy, put_version_state,
     "what a machine kept that comes from another daemon",
     {.id = "put_version_state", .query = {"machine", "sha256", "from", "more"}, .body = "Bytes",
      .replies = {{200, "StateTaken"}}, .problems = {"not-serving", "conflict", "digest-mismatch",
        "upload-quota", "uploads-full"}}},
    {"POST", "/v1/functions/{name}/versions/{version}/take-over", Of::function, kScopeDeploy, take_over,
     "serve one that comes from another daemon", {.id = "take_over", .replies = {{200, "TakenOver"}},
      .problems = {"not-serving", "conflict"}}},
    {"POST", "/v1/functions/{name}/invoke", Of::function, kScopeInvoke, invoke, "send it a request",
     {.id = "invoke", .query = {"method", "path", "version", "timeout", "reply"},
      .headers = {"Kvmserver-Header", "Kvmserver-Headers"},
      .body = "FunctionRequest",
      .replies = {
       {200, "FunctionReply", {"Kvmserver-Version", "Kvmserver-Request-Id", "Kvmserver-Cold", "Server-Timing"}},
       {kAnyStatus, "FunctionReply", {"Kvmserver-Version", "Kvmserver-Request-Id", "Kvmserver-Cold", "Server-Timing"}}},
      .problems = {"not-serving", "bad-reply", "function-failing", "no-socket", "not-forwarded", "not-live",
        "not-restored", "out-of-memory", "program-failed", "program-timeout", "queue-full", "queue-timeout",
        "reply-too-large", "request-timeout", "stopping", "worker-died", "chunks-away"}}},
    {"GET", "/v1/functions/{name}/logs", Of::function, kScopeRead, logs, "what it printed",
     {.id = "function_logs",
      .query = {"follow", "since", "request_id", "version", "tail", "requests", "errors", "grep"},
      .replies = {{200, "LogLines"}}, .problems = {"not-serving"}}},
    {"GET", "/v1/logs", Of::store, kScopeRead, logs, "what all functions printed",
     {.id = "logs", .query = {"follow", "since", "request_id", "version", "tail", "requests", "errors", "grep"},
      .replies = {{200, "LogLines"}}, .problems = {"not-serving"}}},
    {"GET", "/v1/secrets", Of::store, kScopeRead, list_secrets, "names of the secrets for all functions",
     {.id = "list_secrets_for_all", .replies = {{200, "Secrets"}}}},
    {"PUT", "/v1/secrets/{secret}", Of::store, kScopeDeploy, put_secret, "set one for all functions",
     {.id = "put_secret_for_all", .body = "ValueForAll", .replies = {{200, "ValueSet"}}}},
    {"DELETE", "/v1/secrets/{secret}", Of::store, kScopeDeploy, delete_secret, "unset it",
     {.id = "delete_secret_for_all", .replies = {{200, "ValueUnset"}}}},
    {"GET", "/v1/snapshots", Of::any, kScopeRead, list_snapshots, "the snapshots",
     {.id = "list_snapshots", .replies = {{200, "Snapshots"}}}},
    {"POST", "/v1/snapshots/missing", Of::any, kScopeDeploy, missing_pieces, "which pieces must be sent",
     {.id = "missing_pieces", .body = "PieceList", .replies = {{200, "MissingPieces"}}}},
    {"GET", "/v1/snapshots/{digest}", Of::any, kScopeDeploy, get_snapshot, "the file, or a range of it",
     {.id = "get_snapshot", .headers = {"Range"},
      .replies = {{200, "SnapshotBytes", {"ETag", "Accept-Ranges"}}, {206, "SnapshotBytes", {"ETag", "Accept-Ranges",
        "Content-Range"}}}, .problems = {"bad-range", "chunks-away"}}},
    {"GET", "/v1/uploads", Of::store, kScopeAdmin, list_uploads, "uploads that are not complete",
     {.id = "list_uploads", .replies = {{200, "Uploads"}}}},
    {"POST", "/v1/uploads", Of::any, kScopeDeploy, create_upload, "begin an upload, or find it again",
     {.id = "create_upload", .body = "NewUpload",
      .replies = {{200, "UploadFound", {"Location", "Upload-Offset", "Upload-Length"}}, {201, "UploadBegun",
        {"Location", "Upload-Offset", "Upload-Length"}}}, .problems = {"upload-quota", "uploads-full"}}},
    {"HEAD", "/v1/uploads/{id}", Of::any, kScopeDeploy, head_upload, "where it stands",
     {.id = "head_upload", .replies = {{200, "Progress", {"Upload-Offset", "Upload-Length"}}}}},
    {"PATCH", "/v1/uploads/{id}", Of::any, kScopeDeploy, append_upload, "more bytes",
     {.id = "append_upload", .headers = {"Upload-Offset"}, .body = "Bytes",
      .replies = {{200, "UploadDone", {"Upload-Offset", "Upload-Length"}}, {204, "Progress", {"Upload-Offset",
        "Upload-Length"}}},
      .problems = {"conflict", "wrong-offset", "missing-chunk", "digest-mismatch", "bad-snapshot", "chunks-away"}}},
    {"DELETE", "/v1/uploads/{id}", Of::any, kScopeDeploy, delete_upload, "give it up",
     {.id = "delete_upload", .replies = {{200, "DroppedUpload"}}, .problems = {"conflict"}}},
    {"POST", "/v1/gc", Of::store, kScopeAdmin, gc, "remove what nothing names",
     {.id = "gc", .query = {"dry_run", "keep"}, .replies = {{200, "Freed"}}, .problems = {"chunks-away"}}},
    {"POST", "/v1/verify", Of::store, kScopeAdmin, verify, "read the store back and mend it",
     {.id = "verify", .query = {"dry_run", "cluster"}, .replies = {{200, "Verified"}},
      .problems = {"conflict", "no-cluster", "chunks-away"}}},
    {"POST", "/v1/reload", Of::store, kScopeAdmin, reload, "read certificate and store again",
     {.id = "reload", .replies = {{200, "Reloaded"}}, .problems = {"not-serving"}}},
    {"GET", "/v1/nodes", Of::store, kScopeRead, list_nodes, "the daemons of the cluster",
     {.id = "list_nodes", .replies = {{200, "Nodes"}}, .problems = {"not-serving", "no-cluster", "cluster-away"}}},
    {"POST", "/v1/nodes/{node}/drain", Of::store, kScopeAdmin, drain_node,
     "have load balancers send it no more requests",
     {.id = "drain_node", .replies = {{200, "ChangedNode"}}, .problems = {"not-serving", "no-cluster", "conflict"}}},
    {"POST", "/v1/nodes/{node}/uncordon", Of::store, kScopeAdmin, uncordon_node, "end that",
     {.id = "uncordon_node", .replies = {{200, "ChangedNode"}},
      .problems = {"not-serving", "no-cluster", "conflict"}}},
    {"GET", "/v1/certificates", Of::store, kScopeAdmin, list_certificates, "certificates of hosts, without keys",
     {.id = "list_certificates", .replies = {{200, "Certificates"}}}},
    {"POST", "/v1/certificates", Of::store, kScopeAdmin, add_certificate, "a new one, or one in its place",
     {.id = "add_certificate", .body = "NewCertificate", .replies = {{201, "Certificate"}}}},
    {"DELETE", "/v1/certificates/{certificate}", Of::store, kScopeAdmin, delete_certificate, "remove it",
     {.id = "delete_certificate", .replies = {{200, "RemovedCertificate"}}}},
    {"GET", "/v1/tokens", Of::store, kScopeAdmin, list_tokens, "the tokens, without themselves",
     {.id = "list_tokens", .replies = {{200, "Tokens"}}}},
    {"POST", "/v1/tokens", Of::store, kScopeAdmin, create_token, "a new token, shown once",
     {.id = "create_token", .body = "NewToken", .replies = {{201, "MadeToken"}}, .problems = {"conflict"}}},
    {"DELETE", "/v1/tokens/{token}", Of::store, kScopeAdmin, delete_token, "revoke it",
     {.id = "delete_token", .replies = {{200, "RevokedToken"}}}},
};
// clang-format on

// Matches a path against a pattern. Rows with fixed words come before rows with {parameters}.
bool fits(std::string_view pattern, const std::vector<std::string>& segments, Params& params) {
    params.clear();
    pattern.remove_prefix(1);
    if (segments.size() == 1 && segments.front().empty()) // "/"
        return pattern.empty();
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
