// kvmserver.toml and --print-config.
#include "src/cli/options/config_file.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cli/harness.hpp"
#include "tests/unit/cli/matchers.hpp"

using namespace kvmserver;
using namespace kvmserver::cli;
using Strings = std::vector<std::string>;

TEST_CASE("the options file gives what the command line does") {
    const Folder folder;
    struct Row {
        std::string toml, line;
    };
    const Row rows[] = {
        {"ephemeral = true\nthreads = 0\nwarmup = 2", "-e -t 0 -w 2"},
        {"warmup = 'auto'\nclock = 'continues'", "-w auto --clock continues"},
        {"allow-read = true", "--allow-read"},
        {"allow-read = '/a,b'", "--allow-read=/a,b"},
        {"allow-read = [\n  '/a', # arrays span lines\n  'b',\n]", "--allow-read=/a,b"},
        {"allow-net = ['[::1]:80', ':53']\nallow-env = true", "--allow-net=[::1]:80,:53 --allow-env"},
        {"env = ['A=1', 'B=2']\nvolume = 'd:/d:rw'", "--env A=1 --env B=2 --volume d:/d:rw"},
        {"max-boot-time = 1.5\nmax-request-time = 2\nmax-main-memory = 64",
         "--max-boot-time 1.5 --max-request-time 2 --max-main-memory 64"},
        {"no-executable-heap = true\nverbose = true\nhugepages = true", "--no-executable-heap -v --hugepages"},
        {"listen = ':1'\ncpu = 'native'\nreset = 'auto'\ncwd = 'x'", "--listen :1 --cpu native --reset auto --cwd x"},
        {"allow-all = true", "--allow-all"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.toml);
        const Outcome line = kvmserver_line("-c /dev/null run " + row.line + " p");
        folder.write("kvmserver.toml", row.toml);
        folder.write("other.toml", row.toml);
        const Outcome here = kvmserver_line("run p");
        CHECK(here.err == line.err);
        CHECK(line.action == "run");
        CHECK(same(here.options, line.options));
        folder.write("kvmserver.toml", "threads = 'not read'");
        CHECK(same(kvmserver_line("run -c other.toml p").options, line.options));
        CHECK(same(kvmserver_line("--config=other.toml run p").options, line.options));
    }
}

TEST_CASE("options below [snapshot] and [snaprun] are of that command only, and the command line wins") {
    const Folder folder;
    folder.write("kvmserver.toml", "level = 3\nallow-all = true\nthreads = 2\n"
                                   "[snapshot]\nlevel = 19\nallow-read = '/a'\n[snaprun]\nthreads = 4\n");
    const Options made = kvmserver_line("snapshot -o x p").options;
    CHECK(made.level == 19);
    CHECK_FALSE(made.permissions.all);
    CHECK(made.permissions.read == Strings{"/a"});
    CHECK(made.threads == 2);
    CHECK(kvmserver_line("snapshot -o x --level 5 p").options.level == 5);
    const Options run = kvmserver_line("run -e p").options;
    CHECK(run.permissions.all);
    CHECK(run.threads == 2);
    CHECK(kvmserver_line("snaprun x.snap").options.threads == 4);
    CHECK(kvmserver_line("snaprun -t 1 x.snap").options.threads == 1);

    folder.write("kvmserver.toml", "[snapshot]\nlevel = 'high'\n");
    CHECK_THAT(kvmserver_line("run p").err,
               contains("kvmserver.toml:2: snapshot.level must be an integer, not a string"));
    folder.write("kvmserver.toml", "[snapshot]\nlevel = 99\n");
    CHECK_THAT(kvmserver_line("snapshot -o x p").err, contains("kvmserver.toml:2: snapshot.level"));
    folder.write("kvmserver.toml", "[snaprun]\nthraeds = 4\nlevel = 4\n");
    CHECK_THAT(kvmserver_line("run p").err,
               contains("kvmserver.toml:2: unknown key 'snaprun.thraeds'; ignored; did you mean threads?"));
    CHECK_THAT(kvmserver_line("run p").err, contains("kvmserver.toml:3: unknown key 'snaprun.level'"));
    folder.write("kvmserver.toml", "snapshot = 'x.snap'\n");
    CHECK_THAT(kvmserver_line("run p").err, contains("kvmserver.toml:1: snapshot must be a table, not a string"));
}

TEST_CASE("[storage] is what ++ storage says") {
    const Folder folder;
    const Options line =
        kvmserver_line("run p ++ storage --1-to-1 --allow-read=/a --max-main-memory 64 redis-server --port 1").options;
    folder.write("kvmserver.toml", "[storage]\nprogram = 'redis-server'\nargs = ['--port', '1']\n1-to-1 = true\n"
                                   "allow-read = '/a'\nmax-main-memory = 64\n");
    for (const char* const command : {"run p", "snapshot -o x p", "snaprun x"}) {
        const auto storage = kvmserver_line(command).options.storage;
        REQUIRE(storage);
        CHECK(same(*storage, *line.storage));
        CHECK(storage->one_to_one);
    }
    CHECK(kvmserver_line("run p ++ storage other").options.storage->program == "other");
    const std::string printed = kvmserver_line("--print-config run p").out;
    folder.write("printed.toml", printed);
    CHECK(same(*kvmserver_line("run -c printed.toml p").options.storage, *line.storage));

    folder.write("kvmserver.toml", "[storage]\nargs = []\n");
    CHECK_THAT(kvmserver_line("run p").err, contains("kvmserver.toml:1: [storage] program is missing"));
    folder.write("kvmserver.toml", "[storage]\nprogram = 'x'\nthreads = 2\n");
    CHECK_THAT(kvmserver_line("run p").err,
               contains("kvmserver.toml:3: storage.threads: it is no option of the storage"));
    folder.write("kvmserver.toml", "[storage]\nprogram = 'x'\nport = 2\n");
    CHECK_THAT(kvmserver_line("run p").err, contains("kvmserver.toml:3: unknown key 'storage.port'"));
    folder.write("kvmserver.toml", "[storage]\nprogram = 'x'\n1-to-1 = 'yes'\n");
    CHECK_THAT(kvmserver_line("run p").err, contains("kvmserver.toml:3: storage.1-to-1 must be true or false"));
}

TEST_CASE("an array item is one path, commas and all") {
    const Folder folder;
    folder.write("kvmserver.toml", "allow-read = ['/a,b']");
    CHECK(kvmserver_line("run p").options.permissions.read == Strings{"/a,b"});
}

TEST_CASE("the command line wins") {
    const Folder folder;
    folder.write("kvmserver.toml", "threads = 4\nephemeral = true\nallow-read = ['/a']\nenv = ['A=1']\nwarmup = 3\n");
    const Options options = kvmserver_line("run -t 2 --ephemeral=false --allow-read=/b --env B=2 p").options;
    CHECK(options.threads == 2);
    CHECK_FALSE(options.ephemeral);
    CHECK(options.permissions.read == Strings{"/b"});
    CHECK(options.env == Strings{"B=2"});
    CHECK(options.warmup == 3);
    CHECK(options.given == Strings{"allow-read", "env", "ephemeral", "threads", "warmup"});

    const Options all = kvmserver_line("run --allow-all p").options;
    CHECK(all.permissions.all);
    CHECK(all.permissions.read.empty());
    folder.write("kvmserver.toml", "allow-all = true\n");
    const Options narrow = kvmserver_line("run --allow-read=/b p").options;
    CHECK_FALSE(narrow.permissions.all);
    CHECK(narrow.permissions.read == Strings{"/b"});
}

TEST_CASE("false and empty lists are a choice too") {
    const Folder folder;
    folder.write("kvmserver.toml", "allow-read = false\nallow-env = []\nallow-all = false\n");
    const Options options = kvmserver_line("run p").options;
    CHECK(options.permissions == tinykvm::Permissions());
    CHECK(options.given == Strings{"allow-all", "allow-env", "allow-read"});
    folder.write("kvmserver.toml", "allow-read = false\nallow-all = true\n");
    CHECK(kvmserver_line("run p").options.permissions.all);
}

TEST_CASE("[run] is used when no program is given") {
    const Folder folder;
    folder.write("kvmserver.toml", "ephemeral = true\n[run]\nprogram = './server'\nargs = ['--port', '1']\n");
    for (const char* line : {"", "-t 2", "-c kvmserver.toml", "run", "run -t 2"}) {
        CAPTURE(line);
        const Outcome outcome = kvmserver_line(line);
        CHECK(outcome.err == "");
        CHECK(outcome.action == "run");
        CHECK(outcome.options.program == "./server");
        CHECK(outcome.options.args == Strings{"--port", "1"});
        CHECK(outcome.options.ephemeral);
    }
    CHECK(kvmserver_line("run ./other").options.program == "./other");
    CHECK(kvmserver_line("run ./other").options.args.empty());
    CHECK(kvmserver_line("snapshot -o f").options.program == "./server");
    CHECK(kvmserver_line("snapshot -o f ./other").options.program == "./other");
    CHECK(kvmserver_line("snaprun f").options.snapshot_file == "f");
    CHECK(kvmserver_line("version").code == 0);

    folder.write("kvmserver.toml", "[run]\nprogram = 7\nnonsense = 1\n");
    CHECK(kvmserver_line("snaprun f").err == ""); // not even looked at
    CHECK(kvmserver_line("").err == "kvmserver: kvmserver.toml:2: run.program must be a string, not an integer\n");
    folder.write("kvmserver.toml", "[run]\nprogram = 'p'\nargs = 'x'\n");
    CHECK(kvmserver_line("").err ==
          "kvmserver: kvmserver.toml:3: run.args must be an array of strings, not a string\n");
    folder.write("kvmserver.toml", "run = 'p'\n");
    CHECK(kvmserver_line("").err == "kvmserver: kvmserver.toml:1: run must be a table, not a string\n");
    folder.write("kvmserver.toml", "[run]\nprogram = 'p'\narg = ['x']\n");
    CHECK(kvmserver_line("").err ==
          "kvmserver: kvmserver.toml:3: unknown key 'run.arg'; ignored; did you mean args?\n");
    CHECK(kvmserver_line("").action == "run");
}

TEST_CASE("tables of later commands are accepted") {
    const Folder folder;
    folder.write("kvmserver.toml", "[function]\nname = 'hello'\nroutes = ['/*']\n[function.env]\nA = '1'\n"
                                   "[function.scale]\nmin = 1\n[function.hooks]\nhealth = '/'\n");
    CHECK(kvmserver_line("run p").err == "");
    CHECK(kvmserver_line("run p").action == "run");
}

TEST_CASE("variables of [function.env] are the program's in run, and replaceable in a snapshot") {
    const Folder folder;
    folder.write("kvmserver.toml", "env = ['A=file']\n[function.env]\nA = 'other'\nGREETING = 'Hello'\nLONG = '" +
                                       std::string(5000, 'x') + "'\n[run]\nprogram = 'p'\n");
    const Outcome run = kvmserver_line("run");
    REQUIRE(run.options.env.size() == 3);
    CHECK(run.options.env[0] == "A=file"); // an option wins
    CHECK(run.options.env[1] == "GREETING=Hello");
    const Outcome snapshot = kvmserver_line("snapshot -o x.snap --env A=1");
    CHECK(snapshot.options.late_env == std::vector<std::string>{"GREETING=Hello"});
    REQUIRE(snapshot.options.env.size() == 2); // too long for the room that there is
    CHECK(snapshot.options.env[1].starts_with("LONG="));
    CHECK(kvmserver_line("run q").options.env.size() == 1); // another program's
    CHECK(kvmserver_line("run --env GREETING=Hi").options.env[0] == "GREETING=Hi");
    folder.write("kvmserver.toml", "[function.env]\nA = 1\n[run]\nprogram = 'p'\n");
    CHECK(kvmserver_line("run").err ==
          "kvmserver: kvmserver.toml:2: function.env.A must be a string, not an integer\n");
}

TEST_CASE("an option below a section is told where it belongs") {
    const Folder folder;
    folder.write("kvmserver.toml", "[run]\nprogram = 'p'\nallow-write = ['/']\n");
    CHECK(kvmserver_line("run").err == "kvmserver: kvmserver.toml:3: unknown key 'run.allow-write'; ignored; options "
                                       "stand first, above the sections\n");
}

TEST_CASE("unknown keys are warnings, with the nearest name") {
    const Folder folder;
    struct Row {
        std::string toml, warning;
    };
    const Row rows[] = {
        {"\nalow-read = true", "kvmserver.toml:2: unknown key 'alow-read'; ignored; did you mean allow-read?"},
        {"allow_read = true", "kvmserver.toml:1: unknown key 'allow_read'; ignored; did you mean allow-read?"},
        {"zzzzzzzz = 1", "kvmserver.toml:1: unknown key 'zzzzzzzz'; ignored"},
        {"\n[functon]\nname = 'x'", "kvmserver.toml:2: unknown key 'functon'; ignored; did you mean function?"},
        {"config = 'x'", "kvmserver.toml:1: 'config' is for the command line only; ignored"},
        {"print-config = true", "kvmserver.toml:1: 'print-config' is for the command line only; ignored"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.toml);
        folder.write("kvmserver.toml", row.toml);
        const Outcome outcome = kvmserver_line("run p");
        CHECK(outcome.err == "kvmserver: " + row.warning + "\n");
        CHECK(outcome.action == "run");
        CHECK(outcome.options.given.empty());
    }
}

TEST_CASE("bad files: one line with file and line, and a code") {
    const Folder folder;
    struct Row {
        std::string toml, message;
    };
    const Row rows[] = {
        {"threads = '4'", "kvmserver.toml:1: threads must be an integer, not a string"},
        {"\n\nthreads = 1.5", "kvmserver.toml:3: threads must be an integer, not a float"},
        {"threads = -1", "kvmserver.toml:1: threads: '-1' is not a whole number from 0 to 4096"},
        {"ephemeral = 1", "kvmserver.toml:1: ephemeral must be true or false, not an integer"},
        {"max-boot-time = '1'", "kvmserver.toml:1: max-boot-time must be a number, not a string"},
        {"max-boot-time = inf", "kvmserver.toml:1: max-boot-time: 'inf' is not a number of seconds above 0"},
        {"cwd = 2020-01-01", "kvmserver.toml:1: cwd must be a string, not a date or time"},
        {"cwd = ''", "kvmserver.toml:1: cwd: the value is empty"},
        {"cwd = \"a\\u0000b\"", "kvmserver.toml:1: cwd holds a NUL character"},
        {"allow-read = 1",
         "kvmserver.toml:1: allow-read must be true, false, a string or an array of strings, not an integer"},
        {"allow-read = ['/a', 2]", "kvmserver.toml:1: allow-read must be true, false, a string or an array "
                                   "of strings; an integer is in the array"},
        {"allow-read = ''", "kvmserver.toml:1: allow-read: an item is empty"},
        {"[allow-read]\nx = 1",
         "kvmserver.toml:1: allow-read must be true, false, a string or an array of strings, not a table"},
        {"env = {A = '1'}", "kvmserver.toml:1: env must be a string or an array of strings, not a table"},
        {"env = ['A']", "kvmserver.toml:1: env: 'A' is not K=V; to pass the host's on: --allow-env=A"},
        {"allow-all = true\nallow-env = true",
         "kvmserver.toml:1: allow-all excludes kvmserver.toml:2: allow-env; give one of them"},
        {"function = 3", "kvmserver.toml:1: function must be a table, not an integer"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.toml);
        folder.write("kvmserver.toml", row.toml);
        const Outcome outcome = kvmserver_line("run p");
        CHECK(outcome.err == "kvmserver: " + row.message + "\n");
        CHECK(outcome.code == 2);
        CHECK(outcome.action == "");
    }
    for (const std::string toml : {"threads = 4\nthreads = 5\n", "a = [1", "= 3", "x", "cwd = \"\xff\"", "\"\"\""}) {
        CAPTURE(toml);
        folder.write("kvmserver.toml", toml);
        const Outcome outcome = kvmserver_line("run p");
        CHECK(one_line(outcome.err));
        CHECK_THAT(outcome.err, contains("kvmserver.toml:"));
        CHECK(outcome.code == 2);
    }
    folder.write("kvmserver.toml", "\nallow-listen = ['8080']\nvolume = 'x'\n");
    CHECK_THAT(kvmserver_line("run p").err, contains("kvmserver.toml:2: allow-listen=8080") && contains(":8080?"));
    folder.write("kvmserver.toml", "\nvolume = 'x'\n");
    CHECK_THAT(kvmserver_line("run p").err, contains("kvmserver.toml:2: --volume=x"));

    const Outcome missing = kvmserver_line("run -c no.toml p");
    CHECK(missing.err == "kvmserver: options file 'no.toml': No such file or directory\n");
    CHECK(missing.code == 3);
    CHECK(kvmserver_line("run -c . p").err == "kvmserver: options file '.': Is a directory\n");
    CHECK(kvmserver_line("run -c /dev/zero p").err == "kvmserver: options file '/dev/zero': File too large\n");
    CHECK(kvmserver_line("run -c /dev/null p").action == "run");
}

TEST_CASE("commands that need no options do not read the file") {
    const Folder folder;
    folder.write("kvmserver.toml", "broken [");
    CHECK(kvmserver_line("version").code == 0);
    CHECK(kvmserver_line("completion bash").code == 0);
    CHECK(kvmserver_line("run --help").code == 0);
}

TEST_CASE("--print-config reads back the same") {
    const Folder folder;
    folder.write("kvmserver.toml", "allow-env = ['X']\nmax-request-time = 0.1\n[run]\nprogram = 'from-file'\n");
    const std::vector<Strings> lines = {
        words("run"),
        words("run -e -t 0 -w 3 ./prog --help -x"),
        words("run -e -w auto --max-warmup-time 0.5 --clock continues ./prog"),
        words("run --allow-read --allow-write=a,/b/../c --allow-net=[::1]:80 --allow-listen ./p"),
        words("run --allow-all --cwd sub --listen :1 --cpu native --reset auto --warmup-path /x ./p"),
        words("run --volume a:/b --volume /c:/d:rwx --env A=1 --late-env B --late-env C=2 --remapping 1:2 --hugepages "
              "-v --stats ./p"),
        words("run --max-main-memory 1 --max-boot-time 1.25 --limit-request-memory 0 --no-executable-heap ./p"),
        {"run", "--env", "A=\"q\" \\ \t\n\x01'\xc3\xa4", "--allow-read=/with space", "pro\"g", "", "a\nb"},
        words("snapshot -o out.snap --level 3 -e ./prog x"),
        words("snaprun -e --max-request-time 9 app.snap"),
    };
    for (const Strings& line : lines) {
        CAPTURE(line);
        Outcome direct = kvmserver_main(line);
        Strings with_print = line;
        with_print.insert(with_print.begin(), "--print-config");
        const Outcome printed = kvmserver_main(with_print);
        CHECK(printed.code == 0);
        CHECK(printed.action == "");
        folder.write("printed.toml", printed.out);
        const bool run = line[0] == "run" && line.size() > 1;
        const Outcome again = kvmserver_main(run ? Strings{"-c", "printed.toml"}
                                                 : Strings{"-c", "printed.toml", "--print-config", line[0]});
        CHECK(again.err == direct.err.substr(0, run ? std::string::npos : 0));
        if (run)
            CHECK(same(again.options, direct.options));
        else
            CHECK(again.out == printed.out);
        CAPTURE(printed.out);
    }
    CHECK_THAT(kvmserver_line("--print-config").out, contains("program = \"from-file\"") &&
                                                         contains("# threads = 1\n") &&
                                                         contains("max-request-time = 0.1\n"));
    CHECK_THAT(kvmserver_line("--print-config snaprun x").out, !contains("[run]") && !contains("# late-env"));
    CHECK(kvmserver_main({"run", "--print-config", "\xff"}).code == 2);
}
