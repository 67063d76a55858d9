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

TEST_CASE("letters in one word, and their values") {
    const Folder folder;
    for (const char* line :
         {"run -vt4 p", "run -vt=4 p", "run -vt 4 p", "-vt4 run p", "run -v -t=4 p", "run -evt4 p"}) {
        CAPTURE(line);
        const Outcome outcome = kvmserver_line(line);
        CHECK(outcome.err == "");
        CHECK(outcome.options.verbose.general);
        CHECK(outcome.options.threads == 4);
        CHECK(outcome.options.program == "p");
    }
    struct Row {
        Strings words;
        std::string file;
    };
    const Row rows[] = {
        {{"-oa.snap"}, "a.snap"},
        {{"-o=a.snap"}, "a.snap"},
        {{"-o", "a.snap"}, "a.snap"},
        {{"-o", "=a"}, "=a"},
        {{"-o==a"}, "=a"},
        {{"--output==a"}, "=a"},
        {{"-o", "-a"}, "-a"},
        {{"-o-a-b"}, "-a-b"},
        {{"-o", "--"}, "--"},
        {{"-o", "--output=b"}, "--output=b"},
        {{"--output", "--a=b"}, "--a=b"},
        {{"--output=-a"}, "-a"},
        {{"--output=a=b"}, "a=b"},
        {{"-o", "-ephemeral"}, "-ephemeral"},
        {{"--output", "{}"}, "{}"},
        {{"--output=[a,b]"}, "[a,b]"},
        {{"-o", "%%"}, "%%"},
        {{"-o", "snapshot"}, "snapshot"},
        {{"-oab-c"}, "ab-c"},
        {{"--output=\"a b\""}, "\"a b\""},
    };
    for (const Row& row : rows) {
        CAPTURE(row.words);
        Strings after = row.words, before = row.words;
        after.insert(after.begin(), "snapshot");
        after.push_back("p");
        before.insert(before.end(), {"snapshot", "p"});
        for (const Strings& line : {after, before}) {
            const Outcome outcome = kvmserver_main(line);
            CHECK(outcome.err == "");
            CHECK(outcome.options.snapshot_file == row.file);
            CHECK(outcome.options.program == "p");
        }
    }
}

TEST_CASE("the guest's words come as they are, whatever they look like") {
    const Folder folder;
    const Strings odd{"--threads=",      "--threads=4", "=4", "-ephemeral", "-e-v", "-vt4",   "--",       "-t",
                      "--allow-read={}", "[a,b]",       "%%", "",           "-",    "--help", "snapshot", "++",
                      "--zzz",           "\"q\""};
    for (const Strings& begin : {Strings{"run", "p"}, Strings{"-t", "2", "run", "p"}, Strings{"run", "--", "p"}}) {
        Strings line = begin;
        line.insert(line.end(), odd.begin(), odd.end());
        const Outcome outcome = kvmserver_main(line);
        CHECK(outcome.err == "");
        CHECK(outcome.options.program == "p");
        CHECK(outcome.options.args == odd);
    }
    CHECK(kvmserver_line("run run run -e").options.args == Strings{"run", "-e"});
    CHECK(kvmserver_line("run -").options.program == "-");
    CHECK(kvmserver_line("snaprun -e -- -odd.snap").options.snapshot_file == "-odd.snap");
    CHECK(kvmserver_line("snaprun -- -odd.snap").options.snapshot_file == "-odd.snap");
    CHECK(kvmserver_line("-t -- snaprun f").err == "kvmserver: --threads: '--' is not a whole number from 0 to 4096\n");
    CHECK(kvmserver_line("completion bash --").code == 0);
}

TEST_CASE("help is for the command beside it") {
    const Folder folder;
    const std::string version = kvmserver_line("version").out;
    CHECK(kvmserver_line("--version run").out == version);
    CHECK(kvmserver_line("-vh run").out == kvmserver_line("run --help").out);
    CHECK(kvmserver_line("snaprun app.snap -h").out == kvmserver_line("snaprun --help").out);
    CHECK(kvmserver_line("run p --help").action == "run");

    const OptionSpec own{.name = "version", .kind = Kind::text, .group = "Options", .value = "V"};
    std::string given;
    const Command commands[] = {{.name = "delete",
                                 .synopsis = "NAME",
                                 .summary = "",
                                 .operands = Operands::ours,
                                 .options = {own},
                                 .action = [&](const Invocation& invocation, Context&) {
                                     given = invocation.settings.at("version").values.front();
                                     return 0;
                                 }}};
    const auto outcome = [&](const char* line) {
        std::ostringstream out, err;
        run_cli(commands, words(line), {.out = out, .err = err, .folder = "/"});
        return out.str();
    };
    CHECK(outcome("delete hello --version 3") == "");
    CHECK(given == "3");
    CHECK(outcome("--version delete") == version);
    CHECK(given == "3");
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
        {"run --cwd=x -ex p", "unknown option -x in '-ex'; see kvmserver run --help"},
        {"run -ex -x p", "unknown option -x; see kvmserver run --help"},
        {"run -e5 p", "unknown option -5 in '-e5'; see kvmserver run --help"},
        {"run -5 p", "unknown option -5; see kvmserver run --help"},
        {"run -e-version p", "unknown option -- in '-e-version'; did you mean --version?"},
        {"run -e- p", "unknown option -- in '-e-'; see kvmserver run --help"},
        {"run -e=true p", "unknown option -= in '-e=true'; see kvmserver run --help"},
        {"run ---e p", "unknown option ---e; see kvmserver run --help"},
        {"run -eo f p", "--output is an option of snapshot, not of run"},
        {"run -e -o f p", "--output is an option of snapshot, not of run"},
        {"-o f", "--output is an option of snapshot, not of run"},
        {"run -ephemeral p", "-ephemeral has one dash; did you mean --ephemeral?"},
        {"-ephemeral run p", "-ephemeral has one dash; did you mean --ephemeral?"},
        {"run -output p", "-output has one dash; did you mean --output?"},
        {"run -volume a:b p", "-volume has one dash; did you mean --volume?"},
        {"run --lldb 1234 p", "unknown option --lldb; see kvmserver run --help"},
        {"rnu p", "unknown command 'rnu'; did you mean run?"},
        {"snaphot -o f p", "unknown command 'snaphot'; did you mean snapshot?"},
        {"./prog --help", "unknown command './prog'; did you mean kvmserver run ./prog?"},
        {"deploy", "unknown command 'deploy'; see kvmserver --help"},
        {"storage p ++ run q", "unknown command 'storage'; see kvmserver --help"},
        {"-- run p", "'--' before a command; see kvmserver --help"},
        {"run --threads", "--threads needs a value: --threads N"},
        {"snapshot -o", "--output needs a value: --output FILE"},
        {"run -t", "--threads needs a value: --threads N"},
        {"-t", "--threads needs a value: --threads N"},
        {"run --threads= p", "--threads: the value is empty"},
        {"--threads= run p", "--threads: the value is empty"},
        {"run -t= p", "--threads: the value is empty"},
        {"run -t =4 p", "--threads: '=4' is not a whole number from 0 to 4096"},
        {"run -t -e p", "--threads: '-e' is not a whole number from 0 to 4096"},
        {"run --allow-read= p", "--allow-read: the value is empty"}, // never: everything
        {"run --allow-read={} p", "--allow-read: '{}' is no value"},
        {"run --output f p", "--output is an option of snapshot, not of run"},
        {"-o f run p", "--output is an option of snapshot, not of run"},
        {"doctor -e", "--ephemeral is an option of run, snapshot, snaprun, not of doctor"},
        {"version 1", "version takes no '1'"},
        {"version -- 1", "version takes no '1'"},
        {"run", "run needs a PROGRAM, or one in a [run] section of kvmserver.toml; see kvmserver run --help"},
        {"run -e", "run needs a PROGRAM, or one in a [run] section of kvmserver.toml; see kvmserver run --help"},
        {"snapshot p", "snapshot needs -o FILE; see kvmserver snapshot --help"},
        {"snapshot -o f",
         "snapshot needs a PROGRAM, or one in a [run] section of kvmserver.toml; see kvmserver snapshot --help"},
        {"run --no-listen -e p", "--no-listen excludes -e, --http and -t above 1, which serve connections"},
        {"run --no-listen -t 2 p", "--no-listen excludes -e, --http and -t above 1, which serve connections"},
        {"run --gdb 1234 --http p",
         "--gdb excludes -e, --http and -t above 1: it debugs one machine, which keeps its state; to debug a request: "
         "kvmserver debug"},
        {"run --core-dump= p", "--core-dump: the value is empty"},
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
        {"run --allow-read -- / p", "'/' is not a program; --allow-read takes its value with '=': --allow-read=/"},
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
    CHECK(kvmserver_main({"run", "-t", "", "p"}).err == "kvmserver: --threads: the value is empty\n");
}
