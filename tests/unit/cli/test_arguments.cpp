// Which words are whose: options before and after the command, the guest's arguments.
#include "tests/catch.hpp"
#include "tests/unit/cli/harness.hpp"

using namespace kvmserver::cli;
using Strings = std::vector<std::string>;

TEST_CASE("everything after PROGRAM is the guest's") {
    const Folder folder;
    struct Row {
        std::string line, program;
        Strings args;
        bool ephemeral;
    };
    const Row rows[] = {
        {"run ./prog", "./prog", {}, false},
        {"run -e ./prog --help -x", "./prog", {"--help", "-x"}, true},
        {"-e run ./prog --threads 9", "./prog", {"--threads", "9"}, true},
        {"run ./prog -e", "./prog", {"-e"}, false},
        {"run -e -- ./prog -e --", "./prog", {"-e", "--"}, true},
        {"run -- -odd --allow-all", "-odd", {"--allow-all"}, false},
        {"run ./prog -- -e", "./prog", {"--", "-e"}, false},
        {"run ./prog ++ run x", "./prog", {"++", "run", "x"}, false},
        {"run version", "version", {}, false}, // a program named as a command is
        {"run run snapshot", "run", {"snapshot"}, false},
        {"run -t 4 ./prog -c nowhere.toml", "./prog", {"-c", "nowhere.toml"}, false},
        {"run --allow-read ./prog /usr", "./prog", {"/usr"}, false}, // the flag takes no next word
        {"run -ve --allow-env --allow-net ./prog [a,b] {}", "./prog", {"[a,b]", "{}"}, true},
    };
    for (const Row& row : rows) {
        CAPTURE(row.line);
        const Outcome outcome = kvmserver_line(row.line);
        CHECK(outcome.err == "");
        CHECK(outcome.code == kActionCode);
        CHECK(outcome.action == "run");
        CHECK(outcome.options.program == row.program);
        CHECK(outcome.options.args == row.args);
        CHECK(outcome.options.ephemeral == row.ephemeral);
    }
    const Outcome empty = kvmserver_main({"run", "./prog", "", "a b", "\xff"});
    CHECK(empty.options.args == Strings{"", "a b", "\xff"});
}

TEST_CASE("options stand before and after the command, in every form") {
    const Folder folder;
    const char* lines[] = {
        "-t 4 -w 2 run p",
        "run -t 4 -w 2 p",
        "-t4 run -w2 p",
        "run --threads=4 --warmup 2 p",
        "-t 4 run --warmup=2 p",
        "run -w2 -t4 p",
        "run -t=4 -w=2 p",
        "run -t 9 -w 2 -t 4 p",
        "--threads 4 --warmup 2 run p",
    };
    for (const char* line : lines) {
        CAPTURE(line);
        const Outcome outcome = kvmserver_line(line);
        CHECK(outcome.err == "");
        CHECK(outcome.options.threads == 4);
        CHECK(outcome.options.warmup == 2);
        CHECK(outcome.options.given == Strings{"threads", "warmup"});
    }
    for (const char* line : {"-e -o a.snap snapshot p x", "snapshot -e -o a.snap p x", "snapshot -oa.snap -e p x",
                             "-o a.snap snapshot --ephemeral p x", "snapshot --output=a.snap -e=true p x"}) {
        CAPTURE(line);
        const Outcome outcome = kvmserver_line(line);
        if (std::string(line).find("-e=true") != std::string::npos) { // no such short form
            CHECK(outcome.code == 2);
            continue;
        }
        CHECK(outcome.action == "snapshot");
        CHECK(outcome.options.snapshot_file == "a.snap");
        CHECK(outcome.options.program == "p");
        CHECK(outcome.options.args == Strings{"x"});
        CHECK(outcome.options.ephemeral);
    }
    for (const char* line :
         {"snaprun -e app.snap", "snaprun app.snap -e", "-e snaprun app.snap", "snaprun -e -- app.snap"}) {
        CAPTURE(line);
        const Outcome outcome = kvmserver_line(line);
        CHECK(outcome.action == "snaprun");
        CHECK(outcome.options.snapshot_file == "app.snap");
        CHECK(outcome.options.program == "");
        CHECK(outcome.options.ephemeral);
    }
}

TEST_CASE("mistaken words: one line, exit code 2, and what was meant") {
    const Folder folder;
    folder.write("app.snap", "");
    struct Row {
        std::string line, message;
    };
    const Row rows[] = {
        {"run --alow-read p", "unknown option --alow-read; did you mean --allow-read?"},
        {"run --alow-read=/x p", "unknown option --alow-read; did you mean --allow-read?"},
        {"--treads 4 run p", "unknown option --treads; did you mean --threads?"},
        {"run --verb p", "unknown option --verb; did you mean --verbose?"},
        {"run --zzzzzz p", "unknown option --zzzzzz; see kvmserver run --help"},
        {"--zzzzzz", "unknown option --zzzzzz; see kvmserver --help"},
        {"run -x p", "unknown option -x; see kvmserver run --help"},
        {"run -evx p", "unknown option -x in '-evx'; see kvmserver run --help"},
        {"run -ephemeral p", "-ephemeral has one dash; did you mean --ephemeral?"},
        {"run -volume a:b p", "-volume has one dash; did you mean --volume?"},
        {"run --gdb 1234 p", "unknown option --gdb; see kvmserver run --help"},
        {"rnu p", "unknown command 'rnu'; did you mean run?"},
        {"snaphot -o f p", "unknown command 'snaphot'; did you mean snapshot?"},
        {"./prog --help", "unknown command './prog'; did you mean kvmserver run ./prog?"},
        {"deploy", "unknown command 'deploy'; see kvmserver --help"},
        {"storage p ++ run q", "unknown command 'storage'; see kvmserver --help"},
        {"-- run p", "'--' before a command; see kvmserver --help"},
        {"run --threads", "--threads needs a value: --threads N"},
        {"snapshot -o", "--output needs a value: --output FILE"},
        {"run --threads= p", "--threads: the value is empty"},
        {"run --allow-read= p", "--allow-read: the value is empty"}, // never: everything
        {"run --allow-read={} p", "--allow-read: '{}' is no value"},
        {"run --output f p", "--output is an option of snapshot, not of run"},
        {"-o f run p", "--output is an option of snapshot, not of run"},
        {"doctor -e", "--ephemeral is an option of run, snapshot, snaprun, not of doctor"},
        {"version 1", "version takes no '1'"},
        {"run", "run needs a PROGRAM; see kvmserver run --help"},
        {"run -e", "run needs a PROGRAM; see kvmserver run --help"},
        {"snapshot p", "snapshot needs -o FILE; see kvmserver snapshot --help"},
        {"snapshot -o f", "snapshot needs a PROGRAM; see kvmserver snapshot --help"},
        {"snaprun", "snaprun needs a snapshot FILE; see kvmserver snaprun --help"},
        {"snaprun app.snap x",
         "snaprun takes one FILE, not also 'x'; a snapshot holds its program's arguments already"},
        {"", "no command, and no program in a [run] section of kvmserver.toml; see kvmserver --help"},
        {"completion tcsh", "no completion for 'tcsh', only for bash, zsh and fish"},
        {"completion bsh", "no completion for 'bsh', only for bash, zsh and fish; did you mean bash?"},
        {"completion", "completion needs one SHELL: bash, zsh or fish"},
        {"run --allow-listen 8080 p",
         "'8080' is not a program; --allow-listen takes its value with '=': --allow-listen=8080"},
        {"run --allow-connect ::1 p",
         "'::1' is not a program; --allow-connect takes its value with '=': --allow-connect=::1"},
        {"run --allow-read / p", "'/' is not a program; --allow-read takes its value with '=': --allow-read=/"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.line);
        const Outcome outcome = kvmserver_line(row.line);
        CHECK(outcome.err == "kvmserver: " + row.message + "\n");
        CHECK(outcome.code == 2);
        CHECK(outcome.out == "");
        CHECK(outcome.action == "");
    }
    CHECK(kvmserver_main({"run", "-t", "", "p"}).code == 2);
}
