#include "src/admin/problem_codes.hpp"

namespace kvmserver::admin {
namespace {

constexpr ProblemCode kCodes[] = {
    {"bad-value", 400, "something in the request is wrong"},
    {"no-token", 401, "a token is needed"},
    {"wrong-token", 401, "the token is unknown, revoked or has expired"},
    {"above-ceiling", 403, "the version asks for more than is granted"},
    {"not-permitted", 403, "the server may not do this, or the user of the socket may not"},
    {"route-not-granted", 403, "the token may not claim this route"},
    {"scope-too-small", 403, "the token has not the scope"},
    {"secret-not-granted", 403, "the function does not get this secret"},
    {"storage-not-granted", 403, "the token is not for the function's storage"},
    {"wrong-prefix", 403, "the token is for other functions"},
    {"no-endpoint", 404, "there is no such path"},
    {"not-found", 404, "what the path or the body names does not exist"},
    {"wrong-method", 405, "the path has other methods"},
    {"conflict", 409, "the state of the function, upload, token or store does not allow it"},
    {"missing-chunk", 409, "a piece that the delta leaves out was removed"},
    {"no-cluster", 409, "the store is in no cluster"},
    {"route-taken", 409, "another function has the route"},
    {"wrong-offset", 409, "the upload stands elsewhere"},
    {"changed", 412, "somebody else was faster"},
    {"too-large", 413, "the body, or what it would take, is larger than allowed"},
    {"upload-quota", 413, "the uploads of this token would be too large"},
    {"bad-range", 416, "the range lies beyond the snapshot"},
    {"bad-snapshot", 422, "the snapshot is damaged or not supported"},
    {"digest-mismatch", 422, "other bytes arrived than were announced"},
    {"unhealthy", 422, "the new version did not answer"},
    {"failed", 500, "the server failed"},
    {"internal", 500, "the server failed; its log says more"},
    {"bad-reply", 502, "the function gave no complete reply"},
    {"not-forwarded", 502, "the function was migrated, and cannot be reached where it is"},
    {"not-restored", 502, "the function cannot be restored"},
    {"program-failed", 502, "the function ended during the request"},
    {"reply-too-large", 502, "the function's reply is too large for the API"},
    {"worker-died", 502, "the function's process ended during the request"},
    {"busy", 503, "too many requests of this kind at once"},
    {"chunks-away", 503, "the bucket with the chunks of snapshots cannot be reached"},
    {"cluster-away", 503,
     "the index of the cluster cannot be reached, so nothing can be changed; or for so long that nothing is served"},
    {"function-failing", 503, "the function's process ends again and again"},
    {"no-kvm", 503, "the server cannot use KVM"},
    {"no-socket", 503, "the server has no socket left"},
    {"not-live", 503, "no version is live"},
    {"not-serving", 503, "no daemon serves this store"},
    {"queue-full", 503, "too many requests wait for the function"},
    {"queue-timeout", 503, "no machine became free within the function's limit"},
    {"stopping", 503, "the server is stopping"},
    {"program-timeout", 504, "the function did not answer in time"},
    {"queue-timeout", 504, "no machine became free within the request's limit"},
    {"request-timeout", 504, "the request took too long"},
    {"timed-out", 504, "it took too long"},
    {"disk-full", 507, "the server's disk is full"},
    {"out-of-memory", 507, "the request took more memory than it may"},
    {"uploads-full", 507, "all uploads under way would be too large"},
};

} // namespace

std::span<const ProblemCode> problem_codes() { return kCodes; }

} // namespace kvmserver::admin
