#include "src/ops/exit_code.hpp"
#include "tests/catch.hpp"

using kvmserver::ops::exit_code_of_reply;
using tinykvm::ExitCode;

TEST_CASE("a refused command's exit code says whose turn it is") {
    CHECK(exit_code_of_reply(400, "bad-value") == ExitCode::usage);
    CHECK(exit_code_of_reply(413, "too-large") == ExitCode::usage);
    CHECK(exit_code_of_reply(416, "bad-range") == ExitCode::usage);
    CHECK(exit_code_of_reply(401, "") == ExitCode::not_permitted);
    CHECK(exit_code_of_reply(404, "not-found") == ExitCode::not_found);
    CHECK(exit_code_of_reply(412, "changed") == ExitCode::conflict);
    for (const unsigned there_is_nobody : {503u, 504u})
        CHECK(exit_code_of_reply(there_is_nobody, "") == ExitCode::unreachable);
    CHECK(exit_code_of_reply(507, "disk-full") == ExitCode::failure);
    CHECK(exit_code_of_reply(502, "program-failed") == ExitCode::failure); // a function's own doing, of `invoke`
    CHECK(exit_code_of_reply(302, "") == ExitCode::failure);
    // What the problem says goes first.
    CHECK(exit_code_of_reply(422, "bad-snapshot") == ExitCode::bad_snapshot);
    CHECK(exit_code_of_reply(422, "digest-mismatch") == ExitCode::bad_snapshot);
    CHECK(exit_code_of_reply(422, "unhealthy") == ExitCode::failure);
    CHECK(exit_code_of_reply(503, "no-kvm") == ExitCode::no_kvm);
}
