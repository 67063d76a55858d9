#include "src/ops/exit_code.hpp"

namespace kvmserver::ops {

using tinykvm::ExitCode;

ExitCode exit_code_of_reply(unsigned http_status, std::string_view code) {
    if (code == "bad-snapshot" || code == "digest-mismatch")
        return ExitCode::bad_snapshot;
    if (code == "no-kvm")
        return ExitCode::no_kvm;
    if (code == "unhealthy") // neither the call nor the server was wrong
        return ExitCode::failure;
    switch (http_status) {
    case 401:
    case 403: return ExitCode::not_permitted;
    case 404: return ExitCode::not_found;
    case 409:
    case 412: return ExitCode::conflict;
    case 503:
    case 504: return ExitCode::unreachable;
    default: return http_status >= 400 && http_status < 500 ? ExitCode::usage : ExitCode::failure;
    }
}

} // namespace kvmserver::ops
