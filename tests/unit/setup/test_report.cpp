// Lines on stderr and exit codes.
#include "src/setup/report.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "src/setup/hidden_output.hpp"
#include "tests/catch.hpp"
#include "tinykvm/base/unique_fd.hpp"

using namespace kvmserver;
using tinykvm::Stop;
using tinykvm::StopKind;
using tinykvm::UniqueFd;

namespace {

// What is written to stderr meanwhile.
std::string said_by(const std::function<void()>& action) {
    const UniqueFd file(::memfd_create("stderr", MFD_CLOEXEC)), before(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
    REQUIRE(::dup2(file.get(), STDERR_FILENO) == STDERR_FILENO);
    action();
    ::dup2(before.get(), STDERR_FILENO);
    std::string text(4096, '\0');
    const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
}

} // namespace

TEST_CASE("a program's end is its command's exit code, as a shell has it, and told unless it was its own") {
    int code = -1;
    CHECK(said_by([&] { code = report_stop("app", {StopKind::exited, 3, ""}); }).empty());
    CHECK(code == 3);
    CHECK(said_by([&] {
              code = report_stop("app", {StopKind::killed, SIGSEGV, "it fell"});
          }) == "kvmserver: app: it fell\n");
    CHECK(code == 128 + SIGSEGV);
    CHECK(said_by([&] {
              code = report_stop("app", {StopKind::no_memory, 0, "64 MiB are used up"});
          }) == "kvmserver: app: 64 MiB are used up; raise --max-main-memory\n");
    CHECK(code == 1);
    CHECK(said_by([&] {
              code = report_stop("app", {StopKind::broken, 0, "bad exit"});
          }) == "kvmserver: app: the machine broke: bad exit\n");
    CHECK(code == 1);
}

TEST_CASE("what a guest says drives no terminal, and stays one line") {
    CHECK(said_by([] { note_line("name \x1b[2J\nkvmserver: all is well"); }) ==
          "kvmserver: name \\x1b[2J\\x0akvmserver: all is well\n");
}

TEST_CASE("a program is called by its script's name, else by its own, without the folder") {
    tinykvm::ProgramSpec program;
    program.path = "/usr/bin/python3";
    CHECK(program_name(program) == "python3");
    program.script = "/srv/app/server.py";
    CHECK(program_name(program) == "server.py");
    program.script = "server.py";
    CHECK(program_name(program) == "server.py");
}

TEST_CASE("what a program was refused is told under its name, and only while that is kept") {
    EventLoop loop(EventLoop::Own::dry, [](const std::string&) {});
    loop.refused("--allow-read=/early would allow it");
    CHECK(said_by([&] { report_refusals("app", loop); }).empty());
    loop.keep_refusals(true);
    loop.refused("--allow-connect=:5432 would allow it");
    CHECK(said_by([&] { report_refusals("app", loop); }) ==
          "kvmserver: app: it lacked permissions; this would allow what was refused: --allow-connect=:5432\n"
          "kvmserver: app: or as lines at the top of kvmserver.toml:\n"
          "kvmserver: app: allow-connect = [\":5432\"]\n");
}

TEST_CASE("a line erases the progress line that stands on the terminal") {
    note_progress_line(true);
    CHECK(said_by([] { note_line("a"); }) == "\r\33[Kkvmserver: a\n");
    note_progress_line(false);
    CHECK(said_by([] { note_line("a"); }) == "kvmserver: a\n");
}

TEST_CASE("how much was hidden is told once, with the program's name") {
    HiddenOutput output("app");
    CHECK(said_by([&] { output.tell_count(); }).empty());
    for (int i = 0; i < 12345; ++i)
        output.add(1, "x\n");
    CHECK(said_by([&] { output.tell_count(); }) ==
          "kvmserver: app: 12,345 lines of output during warm-up not shown (-v shows them)\n");
    CHECK(said_by([&] { output.tell_count(); }).empty());
    output.add(1, "x\n");
    CHECK(said_by([&] { output.tell_count(); }) ==
          "kvmserver: app: 1 line of output during warm-up not shown (-v shows it)\n");
    output.add(2, "why\n");
    CHECK(said_by([&] { output.show_last(); }) ==
          "kvmserver: app: the last of its output during warm-up, 1 line:\nwhy\n");
    CHECK(said_by([&] {
              output.show_last();
              output.tell_count();
          }).empty());
}
