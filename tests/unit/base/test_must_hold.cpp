#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

#include "tests/catch.hpp"
#include "tinykvm/base/must_hold.hpp"

namespace {

// What a child that does `work` says on stderr, and how it ends.
template <typename Work>
std::pair<std::string, int> in_child(Work work) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::signal(SIGABRT, SIG_DFL); // Catch2 has a handler
        ::dup2(ends[1], STDERR_FILENO);
        work();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    char bytes[512];
    for (ssize_t got = 0; (got = ::read(ends[0], bytes, sizeof(bytes))) > 0;)
        said.append(bytes, static_cast<std::size_t>(got));
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return {said, status};
}

} // namespace

TEST_CASE("what must hold ends the process where it does not, in this build too, and says where") {
    const auto [said, status] = in_child([] { tinykvm::must_hold(::getpid() < 0); });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
    CHECK(said.starts_with("kvmserver: a bug of kvmserver: what must hold at "));
    CHECK(said.find("test_must_hold.cpp:") != std::string::npos);
    CHECK(said.find('\n') == said.size() - 1);

    const auto [nothing, ended] = in_child([] { tinykvm::must_hold(::getpid() > 0); });
    CHECK(nothing.empty());
    CHECK(ended == 0);
}
