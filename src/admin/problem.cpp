#include "src/admin/problem.hpp"

#include <cerrno>

#include "src/admin/ceilings.hpp"
#include "src/daemon/health.hpp"
#include "src/http/problem.hpp"
#include "src/ops/exit_code.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::admin {
namespace {

using tinykvm::ExitCode;

struct Kind {
    unsigned status;
    const char* code;
    const char* hint = "";
};

Kind kind_of(const tinykvm::UserError& error) {
    switch (error.code()) {
    case ExitCode::usage: return {400, "bad-value"};
    case ExitCode::not_found: return {404, "not-found"};
    case ExitCode::not_permitted: return {403, "not-permitted"};
    case ExitCode::conflict: return {409, "conflict"};
    case ExitCode::unreachable: return {504, "timed-out"};
    case ExitCode::bad_snapshot: return {422, "bad-snapshot", "make the snapshot again and send it"};
    case ExitCode::no_kvm: return {503, "no-kvm", "kvmserver doctor on the server says why"};
    default: return {500, "failed"};
    }
}

} // namespace

Refused::Refused(unsigned status, std::string code, const std::string& detail, std::string hint, Headers headers)
    : UserError(ops::exit_code_of_reply(status, code), detail), status_(status), code_(std::move(code)),
      hint_(std::move(hint)), headers_(std::move(headers)) {}

ProblemReply problem_of(std::exception_ptr error, const std::string& request_id) {
    ProblemReply reply;
    Kind kind{500, "internal", "the server's log says more"};
    std::string detail, code, hint;
    try {
        std::rethrow_exception(std::move(error));
    } catch (const Refused& e) {
        reply.headers = e.headers();
        kind = {e.status(), ""};
        code = e.code_name();
        hint = e.hint();
        detail = e.what();
    } catch (const store::StaleEtag& e) {
        kind = {412, "changed", "read it again and repeat with its new ETag"};
        if (!e.current().empty())
            reply.headers.emplace_back("ETag", '"' + e.current() + '"');
        detail = e.what();
    } catch (const store::RouteTaken& e) {
        kind = {409, "route-taken", "choose another route"};
        reply.document["owner"] = e.owner();
        detail = e.what();
    } catch (const store::WrongOffset& e) {
        kind = {409, "wrong-offset", "continue at Upload-Offset"};
        reply.headers.emplace_back("Upload-Offset", std::to_string(e.expected()));
        detail = e.what();
    } catch (const store::MissingChunk& e) {
        kind = {409, "missing-chunk", "send the whole file"};
        detail = e.what();
    } catch (const store::ChunksAway& e) {
        kind = {503, "chunks-away", "try again when the service of --chunks is reached"};
        detail = e.what();
    } catch (const store::IndexAway& e) {
        kind = {503, "cluster-away", "what is deployed is served; try again when the service of --cluster is reached"};
        detail = e.what();
    } catch (const store::DigestMismatch& e) {
        kind = {422, "digest-mismatch", "begin a new upload"};
        detail = e.what();
    } catch (const AboveCeiling& e) {
        kind = {403, "above-ceiling", e.hint()};
        reply.document["claims"] = claims_json(e.claims());
        detail = e.what();
    } catch (const daemon::Unhealthy& e) {
        kind = {422, "unhealthy", "the live versions stay live; `output` is what the new version printed"};
        reply.document["output"] = e.output();
        detail = e.what();
    } catch (const tinykvm::UserError& e) {
        kind = kind_of(e);
        detail = e.what();
    } catch (const tinykvm::HostError& e) {
        if (e.code().value() == ENOSPC || e.code().value() == EDQUOT)
            kind = {507, "disk-full", "make room on the server (kvmserver gc, POST /v1/gc)"};
        detail = e.what();
    } catch (const std::exception& e) {
        detail = e.what();
    }
    reply.status = kind.status;
    reply.document["title"] = http::status_title(kind.status);
    reply.document["status"] = kind.status;
    reply.document["detail"] = detail;
    reply.document["code"] = code.empty() ? kind.code : code;
    reply.document["request_id"] = request_id;
    if (hint.empty())
        hint = kind.hint;
    if (!hint.empty())
        reply.document["hint"] = hint;
    return reply;
}

} // namespace kvmserver::admin
