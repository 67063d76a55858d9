// Help, version, doctor, completion, and how failures of the actions come out.
#include <algorithm>

#include "src/cli/doctor/probe_line.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cli/harness.hpp"
#include "tests/unit/cli/matchers.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using namespace kvmserver::cli;
using Catch::Matchers::Matches;

namespace {

Outcome failing(const std::function<int()>& what) {
    const Command commands[] = {run_command([&](const Options&) { return what(); })};
    std::ostringstream out, err;
    Outcome outcome;
    outcome.code = run_cli(commands, {"-c", "/dev/null", "run", "p"}, {.out = out, .err = err, .folder = "/"});
    outcome.err = err.str();
    return outcome;
}

} // namespace

TEST_CASE("an action's failure is one line and the documented code") {
    using tinykvm::ExitCode;
    CHECK(failing([]() -> int { throw tinykvm::UserError(ExitCode::bad_snapshot, "a.snap is no snapshot"); }).code ==
          7);
    CHECK(failing([]() -> int { throw tinykvm::UserError(ExitCode::no_kvm, "two\nlines"); }).err ==
          "kvmserver: two lines\n");
    const Outcome host = failing([]() -> int { throw tinykvm::HostError(ENOSPC, "write a.snap"); });
    CHECK(host.code == 1);
    CHECK(host.err == "kvmserver: write a.snap: No space left on device\n");
    CHECK(failing([]() -> int { throw std::bad_alloc(); }).code == 1);
    CHECK(failing([] { return 137; }).code == 137); // a program killed by a signal
}

TEST_CASE("help") {
    const Outcome top = kvmserver_line("--help");
    CHECK(top.code == 0);
    CHECK(top.err == "");
    for (const char* name : {"run [PROGRAM", "snapshot -o FILE", "snaprun FILE", "doctor", "completion", "version"})
        CHECK_THAT(top.out, contains(name));
    CHECK_THAT(top.out, !contains("deploy") && !contains("storage"));

    const Outcome run = kvmserver_line("run --help");
    CHECK(run.code == 0);
    CHECK_THAT(run.out, contains("Usage: kvmserver run [OPTIONS] [PROGRAM [ARGS...]]") &&
                            contains("--allow-read[=PATHS]") && contains("(8192)") && !contains("--remapping") &&
                            contains("--http") && !contains("--output") && contains("--help-all"));
    CHECK(kvmserver_line("-h run").out == run.out);
    CHECK(kvmserver_line("run -t 4 -h p").out == run.out); // before PROGRAM it is ours
    CHECK_THAT(kvmserver_line("run --help-all").out, contains("--hugepages") && contains("--remapping VIRT:SIZE"));
    CHECK_THAT(kvmserver_line("snapshot -h").out, contains("-o, --output FILE") && contains("--level"));
    CHECK_THAT(kvmserver_line("--help-all").out, contains("--hugepages") && contains("kvmserver doctor"));
    std::istringstream lines(kvmserver_line("--help-all").out);
    for (std::string line; std::getline(lines, line);)
        CHECK(line.size() <= 112);
}

TEST_CASE("version") {
    CHECK_THAT(kvmserver_line("version").out,
               Matches("kvmserver [0-9]+\\.[0-9]+\\.[0-9]+(-dev)?( \\([0-9a-f]{12}(, modified)?\\))?\n"));
    CHECK(kvmserver_line("--version").out == kvmserver_line("version").out);
}

TEST_CASE("a stdout that cannot be written is a failure") {
    const Command commands[] = {version_command()};
    std::ofstream full("/dev/full");
    std::ostringstream err;
    CHECK(run_cli(commands, {"version"}, {.out = full, .err = err, .folder = "/"}) == 1);
    CHECK(err.str() == "kvmserver: stdout cannot be written\n");
}

TEST_CASE("doctor: one line a check, 8 when machines cannot run") {
    const auto doctor = [](const std::string& device) {
        const Command commands[] = {doctor_command(device)};
        std::ostringstream out, err;
        Outcome outcome;
        outcome.code = run_cli(commands, {"doctor"}, {.out = out, .err = err, .folder = "/"});
        outcome.out = out.str();
        return outcome;
    };
    CHECK(doctor("/nonexistent/kvm").code == 8);
    CHECK_THAT(doctor("/nonexistent/kvm").out,
               contains("/nonexistent/kvm missing: ")); // see test_doctor.cpp
    const Outcome null = doctor("/dev/null");
    CHECK(null.code == 8);
    CHECK_THAT(null.out, contains("/dev/null exists\n/dev/null permitted\n/dev/null: "));
    CHECK_THAT(null.out, contains("\nopen files ") && contains("\nmemory"));
    if (::geteuid() != 0) {
        const Folder folder;
        folder.write("kvm", "");
        std::filesystem::permissions(folder.path("kvm"), std::filesystem::perms::none);
        CHECK(doctor(folder.path("kvm")).code == 8);
        CHECK_THAT(doctor(folder.path("kvm")).out, contains("group kvm"));
    }
    CHECK_THROWS_AS(probe_line("/dev/null"), tinykvm::UserError);
}

TEST_CASE("completion scripts hold the commands' options") {
    const std::string bash = kvmserver_line("completion bash").out;
    CHECK_THAT(bash, contains("complete -o default -F _kvmserver kvmserver") && contains("--allow-read") &&
                         contains("auto dirty-bits working-set") && contains("--http "));
    const std::string zsh = kvmserver_line("completion zsh").out;
    CHECK_THAT(zsh, contains("#compdef kvmserver") &&
                        contains("'*--threads=[request machines; 0 = number of CPUs]:N: '") &&
                        contains("'*--allow-read=-["));
    const std::string fish = kvmserver_line("completion fish").out;
    CHECK_THAT(fish, contains("complete -c kvmserver -n '__fish_seen_subcommand_from run' -l threads -s t -x"));
}

#if __has_include(<spawn.h>)
namespace {
// What bash offers for a command line; the cursor is at the end of its last word.
std::string bash_offers(const Folder& folder, const std::string& comp_words) {
    folder.write("script", kvmserver_line("completion bash").out + "COMP_WORDS=(" + comp_words +
                               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _kvmserver; "
                               "echo \"${COMPREPLY[*]}\" > offers\n");
    REQUIRE(std::system("bash --norc script") == 0);
    std::ifstream file(folder.path("offers"));
    std::string line;
    std::getline(file, line);
    return line;
}
} // namespace

TEST_CASE("bash completes commands, options and values, and leaves the guest's words alone") {
    const Folder folder;
    if (std::system("command -v bash >/dev/null") != 0)
        return;
    CHECK(bash_offers(folder, "kvmserver sna") == "snaprun snapshot");
    CHECK(bash_offers(folder, "kvmserver -e sna") == "snaprun snapshot");
    CHECK(bash_offers(folder, "kvmserver -t run sna") == "snaprun snapshot"); // `run` is the value of -t
    CHECK(bash_offers(folder, "kvmserver run --allow-r") == "--allow-read");
    CHECK(bash_offers(folder, "kvmserver --allow-r") == "--allow-read");
    CHECK(bash_offers(folder, "kvmserver run --out") == "");
    CHECK(bash_offers(folder, "kvmserver snapshot --out") == "--output");
    CHECK(bash_offers(folder, "kvmserver run --reset ''") == "auto dirty-bits working-set");
    CHECK(bash_offers(folder, "kvmserver run --reset = d") == "dirty-bits");
    CHECK(bash_offers(folder, "kvmserver run --reset =") == "auto dirty-bits working-set");
    CHECK(bash_offers(folder, "kvmserver run --reset = auto --allow-r") == "--allow-read");
    CHECK(bash_offers(folder, "kvmserver run ./prog --allow-r") == "");
    CHECK(bash_offers(folder, "kvmserver run -- --allow-r") == "");
    CHECK(bash_offers(folder, "kvmserver snaprun app.snap --allow-r") == "--allow-read");
    CHECK(bash_offers(folder, "kvmserver completion f") == "fish");
}
#endif
