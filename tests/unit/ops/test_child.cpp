// Processes that a command starts: their output, their end and what it means.
#include "src/ops/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"

using kvmserver::ops::Child;
using kvmserver::ops::exit_code_of;
using kvmserver::ops::memory_file;
using kvmserver::ops::text_of;
using tinykvm::ExitCode;
using tinykvm::UniqueFd;

namespace {

std::pair<int, std::string> run(const std::string& script, const std::string& folder = "/") {
    const UniqueFd output = memory_file("output");
    Child child({"/bin/sh", "-c", script}, folder, output.get());
    const int status = child.wait();
    return {status, text_of(output.get())};
}

} // namespace

TEST_CASE("a child runs in its folder, without input, and both its outputs are kept") {
    CHECK(run("pwd; echo wrong >&2; cat", "/proc") == std::pair(0, std::string("/proc\nwrong\n")));
}

TEST_CASE("a child's end is told as a shell tells it") {
    CHECK(run("exit 7").first == 7);
    CHECK(run("kill -TERM $$").first == 128 + SIGTERM);
    CHECK(run("kill -KILL $$").first == 128 + SIGKILL);
}

TEST_CASE("a child that cannot begin says why") {
    const auto [status, said] = run("true", "/no/such/folder");
    CHECK(status == 126);
    CHECK(said.starts_with("kvmserver: cannot start "));
    CHECK(said.ends_with(": its folder /no/such/folder: No such file or directory\n"));
    const UniqueFd output = memory_file("output");
    Child child({"/no/such/program"}, "/", output.get());
    CHECK(child.wait() == 126);
    CHECK(child.wait() == 126); // as often as one likes
    CHECK(text_of(output.get()) == "kvmserver: cannot start /no/such/program: No such file or directory\n");
}

TEST_CASE("a child ends by the signals that its parent blocks or ignores") {
    sigset_t term, before;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &term, &before);
    const auto handler = ::signal(SIGPIPE, SIG_IGN);
    const int by_term = run("kill -TERM $$").first, by_pipe = run("kill -PIPE $$").first;
    ::signal(SIGPIPE, handler);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    CHECK(by_term == 128 + SIGTERM);
    CHECK(by_pipe == 128 + SIGPIPE);
}

TEST_CASE("a child that nobody waited for ends with its object") {
    int pipe_fds[2];
    REQUIRE(::pipe2(pipe_fds, O_CLOEXEC) == 0);
    const UniqueFd read_end(pipe_fds[0]);
    UniqueFd write_end(pipe_fds[1]);
    std::optional<Child> child(std::in_place, std::vector<std::string>{"/bin/sh", "-c", "echo up; exec sleep 1000"},
                               "/", write_end.get());
    write_end.reset();
    char text[3] = "";
    REQUIRE(::read(read_end.get(), text, sizeof text) == 3);
    const UniqueFd ended = child->end_fd();
    pollfd wanted{ended.get(), POLLIN, 0};
    CHECK(::poll(&wanted, 1, 0) == 0);
    child.reset();
    CHECK(::poll(&wanted, 1, 0) == 1);
    CHECK(::read(read_end.get(), text, 1) == 0); // nobody has its output any more
}

TEST_CASE("of a long output the beginning is kept") {
    const UniqueFd file = memory_file("output");
    REQUIRE(::write(file.get(), "0123456789", 10) == 10);
    CHECK(text_of(file.get(), 4) == "0123");
    CHECK(text_of(file.get()) == "0123456789");
}

TEST_CASE("a command fails as the kvmserver did that it started, unless that was called wrongly") {
    for (const ExitCode code : {ExitCode::not_found, ExitCode::not_permitted, ExitCode::unreachable,
                                ExitCode::bad_snapshot, ExitCode::no_kvm})
        CHECK(exit_code_of(static_cast<int>(code)) == code);
    for (const int other : {1, static_cast<int>(ExitCode::usage), 126, 128 + SIGKILL})
        CHECK(exit_code_of(other) == ExitCode::failure);
}
