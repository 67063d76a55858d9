// What each option means.
#include "src/cli/options/options_from.hpp"
#include "src/cli/paths.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cli/harness.hpp"
#include "tests/unit/cli/matchers.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using namespace kvmserver::cli;
using Strings = std::vector<std::string>;
using tinykvm::NetRule;
using tinykvm::Volume;

namespace {

Options told(const std::string& line) {
    const Outcome outcome = kvmserver_line("run " + line + " prog");
    CHECK(outcome.err == "");
    REQUIRE(outcome.action == "run");
    return outcome.options;
}

std::string refused(const std::string& line) {
    const Outcome outcome = kvmserver_line("run " + line + " prog");
    CHECK(outcome.code == 2);
    CHECK(outcome.action == "");
    CHECK(one_line(outcome.err));
    return outcome.err.empty() ? "" : outcome.err.substr(11, outcome.err.size() - 12);
}

} // namespace

TEST_CASE("nothing given: the defaults of the plain values") {
    const Folder folder;
    Options expected;
    expected.program = "prog";
    expected.cwd = folder.path();
    CHECK(same(told(""), expected));
}

TEST_CASE("the defaults that help shows are the real ones") {
    Settings settings;
    for (const OptionSpec& spec : machine_options())
        if (!spec.fallback.empty())
            settings[std::string(spec.name)] = {.values = {std::string(spec.fallback)}};
    Options shown = options_from(settings, "/", 1);
    CHECK(shown.cpu == "native");
    CHECK(shown.reset == "auto");
    shown.cpu = shown.reset = "";
    shown.given.clear();
    Settings none;
    CHECK(same(shown, options_from(none, "/", 1)));
}

TEST_CASE("switches and plain values") {
    const Folder folder;
    CHECK(told("-e").ephemeral);
    CHECK(told("--ephemeral=true").ephemeral);
    CHECK_FALSE(told("-e --ephemeral=false").ephemeral);
    CHECK(told("--stats").stats);
    CHECK(told("-e --server-first").server_first);
    CHECK(told("--check-reset").check_reset);
    CHECK_FALSE(told("--no-executable-heap").limits.executable_heap);
    CHECK_FALSE(told("--no-ephemeral-keep-working-memory").keep_working_memory);
    CHECK(told("--no-executable-heap=false").limits.executable_heap);
    CHECK(same(told("-v --verbose-syscalls --verbose-pagetables").verbose, {true, true, false, false, true}));
    CHECK(
        same(told("-vv --verbose-mmap-syscalls --verbose-thread-syscalls").verbose, {true, false, true, true, false}));
    CHECK(told("-t 3").threads == 3);
    CHECK(told("-t 0").threads == kTestCpus);
    CHECK(told("--code-as-is").code_as_is);
    CHECK(told("-w 7 --warmup-path /ready?x=1").warmup_requests.at(0).target == "/ready?x=1");
    CHECK(told("--warmup-path /a --warmup-path /b").warmup_requests.at(1).target == "/b");
    folder.write("w.http", "POST /a\n\nx\n");
    CHECK(told("--warmup-requests w.http").warmup_requests.at(0).body == "x");
    CHECK(told("-w 7").warmup == 7);
    CHECK_FALSE(told("-w 7").warmup_auto);
    CHECK(told("-w auto --max-warmup-time 2.5").warmup_auto);
    CHECK(told("-w auto --max-warmup-time 2.5").warmup_seconds == 2.5);
    CHECK(told("--clock continues").clock == "continues");
    CHECK(told("--cpu x86-64-v3").cpu == "x86-64-v3");
    CHECK(told("--reset=working-set").reset == "working-set");
    CHECK(told("--listen :8080").listen == ":8080");
    CHECK(told("--listen [::1]:80").listen == "[::1]:80");
    CHECK(told("--listen 127.0.0.1:0").listen == "127.0.0.1:0");
    CHECK(kvmserver_line("snapshot -o f --level 19 p").options.level == 19);
    CHECK(told("--env A=1 --env=B=x=y --env A=2 --env C=").env == Strings{"B=x=y", "A=2", "C="});
    CHECK(told("--cwd /srv/../tmp/").cwd == "/tmp");
    CHECK(told("--cwd sub").cwd == folder.path("sub"));
}

TEST_CASE("limits: seconds as they are, MiB to bytes") {
    const Folder folder;
    const tinykvm::Limits limits =
        told("--max-boot-time 0.5 --max-request-time=3 --max-main-memory 64 --max-address-space 4096 "
             "--max-request-memory 16 --limit-request-memory 0")
            .limits;
    CHECK(limits.boot_seconds == 0.5);
    CHECK(limits.request_seconds == 3);
    CHECK(limits.memory == 64ull << 20);
    CHECK(limits.address_space == 4096ull << 20);
    CHECK(limits.request_memory == 16ull << 20);
    CHECK(limits.keep_memory == 0);
    CHECK(told("--max-main-memory 200000").limits.address_space == 200000ull << 20);
}

TEST_CASE("permissions") {
    const Folder folder;
    const NetRule anywhere;
    CHECK(told("--allow-all").permissions.all);
    CHECK(told("--allow-read").permissions.read == Strings{"/"});
    CHECK(told("--allow-read=/a,b/../c/,/a").permissions.read == Strings{"/a", folder.path("c")});
    CHECK(told("--allow-read=/a --allow-read=.").permissions.read == Strings{"/a", folder.path()});
    CHECK(told("--allow-write").permissions.write == Strings{"/"});
    CHECK(told("--allow-write=/tmp//x/").permissions.write == Strings{"/tmp/x"});
    CHECK(told("--allow-read=true").permissions.read == Strings{folder.path("true")});
    CHECK(told("--allow-env").permissions.env == Strings{"*"});
    CHECK(told("--allow-env=A,B_*").permissions.env == Strings{"A", "B_*"});
    CHECK(told("--allow-net").permissions.connect == std::vector{anywhere});
    CHECK(told("--allow-net").permissions.listen == std::vector{anywhere});
    CHECK(told("--allow-connect").permissions.listen.empty());
    CHECK(told("--allow-listen=:8080,[::1]:80,localhost:1").permissions.listen ==
          std::vector<NetRule>{{"", 8080}, {"::1", 80}, {"localhost", 1}});
    CHECK(told("--allow-net=db:5432 --allow-connect=:53").permissions.connect ==
          std::vector<NetRule>{{"db", 5432}, {"", 53}});
    CHECK(told("--allow-net=db:5432 --allow-connect=:53").given == Strings{"allow-connect", "allow-net"});

    const std::vector<Volume> volumes{{folder.path("data"), "/data", true, false, false},
                                      {"/srv", "/www", true, true, false}};
    CHECK(told("--volume=./data:/data --volume /srv:/www:rw").permissions.volumes == volumes);
    CHECK(told("--volume ./data:/data:r --volume=/srv/:/www/:rw").permissions.volumes == volumes);
    CHECK(told("--volume=./data:/data,/srv:/www:rw").permissions.volumes == volumes);
    CHECK(told("--volume=/a,b:/c").permissions.volumes == std::vector{tinykvm::Volume{"/a,b", "/c"}});
    CHECK(told("--volume ./data:/data").permissions.read.empty());
}

TEST_CASE("values that are refused: one line naming the option") {
    const Folder folder;
    struct Row {
        std::string line, message;
    };
    const Row rows[] = {
        {"-t x", "--threads: 'x' is not a whole number from 0 to 4096"},
        {"-t -1", "--threads: '-1' is not a whole number from 0 to 4096"},
        {"-t 4x", "--threads: '4x' is not a whole number from 0 to 4096"},
        {"-w 99999999999999999999", "--warmup: '99999999999999999999' is not a whole number from 0 to 1000000 or auto"},
        {"-w often", "--warmup: 'often' is not a whole number from 0 to 1000000 or auto"},
        {"--max-warmup-time 0", "--max-warmup-time: '0' is not a number of seconds above 0"},
        {"--clock stops", "--clock: 'stops' is not pauses, continues"},
        {"--max-main-memory 8G", "--max-main-memory: '8G' is not a whole number of MiB from 1 to 134217728"},
        {"--max-main-memory 0", "--max-main-memory: '0' is not a whole number of MiB from 1 to 134217728"},
        {"--max-request-time 0", "--max-request-time: '0' is not a number of seconds above 0"},
        {"--max-request-time nan", "--max-request-time: 'nan' is not a number of seconds above 0"},
        {"--max-boot-time inf", "--max-boot-time: 'inf' is not a number of seconds above 0"},
        {"--max-boot-time -3", "--max-boot-time: '-3' is not a number of seconds above 0"},
        {"--ephemeral=maybe", "--ephemeral: 'maybe' is neither true nor false"},
        {"--cpu x86-64-v9",
         "--cpu: 'x86-64-v9' is not native, x86-64-v2, x86-64-v3, x86-64-v4; did you mean x86-64-v2?"},
        {"--reset dirtybits", "--reset: 'dirtybits' is not auto, dirty-bits, working-set; did you mean dirty-bits?"},
        {"--warmup-path ready", "--warmup-path: 'ready' must start with '/'"},
        {"--env A", "--env: 'A' is not K=V; to pass the host's on: --allow-env=A"},
        {"--env =1", "--env: '=1' has no name"},
        {"--allow-env=A=1", "--allow-env: 'A=1' is not a name; to set a variable: --env A=1"},
        {"--allow-env=*_KEY", "--allow-env: '*' may only end the name in '*_KEY'"},
        {"--allow-read=/a,,/b", "--allow-read: an item is empty"},
        {"--allow-all --allow-read", "--allow-all excludes --allow-read; give one of them"},
        {"--allow-env=A --allow-all", "--allow-all excludes --allow-env; give one of them"},
        {"--allow-all --volume a:/b", "--allow-all excludes --volume; give one of them"},
        {"--listen 127.0.0.1", "--listen=127.0.0.1: a port is missing; write 127.0.0.1:PORT"},
        {"--listen ::1", "--listen=::1: a port is missing; write [::1]:PORT"},
        {"--listen [::1]", "--listen=[::1]: a port is missing; write [::1]:PORT"},
        {"--hugepage-arena-size x", "--hugepage-arena-size: 'x' is not a whole number of MiB from 0 to 134217728"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.line);
        CHECK(refused(row.line) == row.message);
    }
    CHECK(kvmserver_line("snapshot -o f --level 23 p").err ==
          "kvmserver: --level: '23' is not a whole number from 1 to 22\n");
    // These come from tinykvm/linux/permissions.cpp.
    CHECK_THAT(refused("--allow-listen=8080"), contains("--allow-listen=8080") && contains("did you mean :8080?"));
    CHECK_THAT(refused("--listen 8080"), contains("--listen=8080") && contains("did you mean :8080?"));
    CHECK_THAT(refused("--volume a"), contains("--volume=a"));
    CHECK_THAT(refused("--volume a:/b,c:"), contains("--volume=c:"));
    CHECK_THAT(refused("--volume a:/b:q"), contains("rwx") || contains("r, w and x"));
}

TEST_CASE("huge pages: sizes are rounded up to whole ones") {
    constexpr std::uint64_t kMib = 1 << 20, kAllOfIt = ~std::uint64_t{0};
    const auto pages = [](const char* line) { return told(line).huge_pages; };
    const auto arena = [](const char* line) { return told(line).limits.request_arena; };
    CHECK(pages("") == HugePages{});
    CHECK(pages("--hugepages").main == kAllOfIt);
    CHECK(arena("--hugepages") == 0);
    CHECK(pages("--hugepage-arena-size 5").main == 6 * kMib);
    CHECK(pages("--hugepages --hugepage-arena-size 4").main == 4 * kMib);
    CHECK(pages("--transparent-hugepages").main == kAllOfIt);
    CHECK(pages("--hugepage-requests-arena 63").main == 0);
    CHECK(arena("--hugepage-requests-arena 63") == 64 * kMib);
    CHECK(pages("--hugepage-requests-arena 63").reserved);
    CHECK_FALSE(pages("--transparent-hugepages").reserved);
    CHECK(refused("--hugepages=often") == "--hugepages: 'often' is neither true nor false");
}

TEST_CASE("options that have no effect are accepted, and named") {
    const Folder folder;
    const std::string peer = "--hugepages --no-split-hugepages --transparent-hugepages --no-mmap-backed-files "
                             "--shared-memory 1 --heap-address-hint 2 --dylink-address-hint 3 --hugepage-arena-size 4 "
                             "--hugepage-requests-arena 5 --remapping 0x1000:1:0:rw --remapping 0x2000:1";
    for (const char* verbose : {"", "-v "})
        CHECK(kvmserver_line("run " + (verbose + peer) + " p").err ==
              "kvmserver: accepted without effect: --shared-memory --heap-address-hint --dylink-address-hint "
              "--remapping --no-mmap-backed-files --no-split-hugepages\n");
    CHECK(kvmserver_line("snapshot --hugepages --hugepage-requests-arena 2 -o f p").err ==
          "kvmserver: without effect on snapshot: --hugepages\n");
    CHECK(kvmserver_line("snaprun --late-env A=1 f").err == "kvmserver: without effect on snaprun: --late-env\n");
    CHECK(kvmserver_line("snaprun --allow-env -w 3 f").err ==
          "kvmserver: without effect on snaprun: --warmup --allow-env\n");
    CHECK(kvmserver_line("snapshot -e -t 2 --listen :1 -o f p").err ==
          "kvmserver: without effect on snapshot: --ephemeral --threads\n");
    folder.write("kvmserver.toml", "warmup = 3\n");
    CHECK(kvmserver_line("snaprun f").err == "");
    CHECK(kvmserver_line("snaprun -v f").err == "kvmserver: without effect on snaprun: --warmup\n");
}

TEST_CASE("absolute_path") {
    CHECK(absolute_path("/f", "a/./b/../c/") == "/f/a/c");
    CHECK(absolute_path("/f", "") == "/f");
    CHECK(absolute_path("/f", ".") == "/f");
    CHECK(absolute_path("/f", "/") == "/");
    CHECK(absolute_path("/f", "//x//y") == "/x/y");
    CHECK(absolute_path("/f", "../../..") == "/");
    CHECK(absolute_path("/", "a") == "/a");
}
