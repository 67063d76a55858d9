// All options of `run`, `snapshot` and `snaprun` as plain values, filled in by src/cli.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/ceilings/ceilings.hpp"
#include "src/jail/walls.hpp"
#include "src/setup/warmup_request.hpp"
#include "tinykvm/linux/permissions.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct Verbosity {
    bool general = false; // -v
    bool syscalls = false;
    bool mmap = false;
    bool threads = false;
    bool pagetables = false;
};

// A second snapshot, of the program as it is before --warmup auto: for `deploy`, which makes it live at once.
struct EarlySnapshot {
    std::string file;              // "": none is wanted
    std::function<void()> written; // called once the file is complete; the warm-up begins when it returns
};

// What a command that takes long is doing at the moment.
struct PhaseNews {
    std::string name;                // for programs: boot, warm-up, check, save
    std::string what;                // for people: "warming up"
    std::string detail = {};         // how far it is: "680 requests"
    std::uint64_t done = 0, all = 0; // requests; 0: unknown
};

struct SnapshotMade {
    std::string file, sha256;
    std::uint64_t bytes = 0;
};

// Where diagnostics go in place of stderr. Any thread may call it.
struct NoteSink {
    std::function<void(const std::string& line)> note;
    std::function<void(const std::string& line)> refusal; // what a program was refused that failed to start
};

// --hugepages and the like (src/setup/huge_pages.hpp)
struct HugePages {
    std::uint64_t main = 0; // leading bytes of a machine's main memory that are to be in huge pages; all: ~0
    bool reserved = true;   // whether an arena (Limits::request_arena) takes those that the host has reserved
    bool operator==(const HugePages&) const = default;
};

inline constexpr const char* kUsualPath = "/usr/local/bin:/usr/bin:/bin"; // where PATH is not set

struct Options {
    // The program (run, snapshot) or the snapshot file (snaprun).
    std::string program;           // as given by the user: a path, or a name to look up in PATH
    std::vector<std::string> args; // without the program itself
    // What to run in place of programs that are found in PATH: those of version managers, by the paths of their shims.
    std::map<std::string, std::string> substitutes;
    std::string snapshot_file; // snapshot -o, snaprun
    std::string cwd;           // absolute
    // "K=V" from --env. The runner adds the host's variables that the permissions allow.
    std::vector<std::string> env;

    // "K=V" from --late-env (run, snapshot); stored with room, so that a restore can replace the value.
    std::vector<std::string> late_env;

    unsigned threads = 1; // request machines; the CLI has replaced 0 with the number of CPUs
    bool ephemeral = false;
    unsigned warmup = 0;                            // rounds
    bool warmup_auto = false;                       // --warmup auto: until invocations get no cheaper
    std::string before_snapshot;                    // path of the hook; "": none
    double warmup_seconds = 10;                     // --max-warmup-time: limit of --warmup auto
    std::vector<WarmupRequest> warmup_requests{{}}; // each round sends all of them; --warmup-path, --warmup-requests
    std::string listen;        // --listen: overrides the first listener's address; "" keeps the program's
    bool no_listen = false;    // --no-listen: not a server, so its boot is not limited (run without -e)
    bool server_first = false; // --server-first: with -e, a client gets a machine before it has sent anything
    bool http = false;         // a clean machine for each HTTP request; implies ephemeral
    jail::Mode jail = jail::Mode::automatic; // --jail (run, snaprun)
    std::string cache;          // --cache: folder of unpacked copies (src/snapshot/page_cache.hpp); "" for none
    bool dev = false;           // run --dev: serve what a snapshot of the program would hold, for `dev`; implies http
    EarlySnapshot early;        // snapshot
    bool temporary = false;     // the snapshot's file will be removed: do not cache its pages
    bool strict_unique = false; // --strict-unique: refuse to snapshot a program whose random values would repeat
    bool stats = false;         // --stats: counters at exit, to stderr
    int level = 0;              // zstd level of snapshot; 0 = default
    std::string cpu;            // --cpu BASELINE: "", native, x86-64-v2, -v3, -v4
    bool code_as_is = false;    // --code-as-is: leave SYSCALL instructions in place instead of patching them to stubs
    std::string core_dump;      // --core-dump: absolute folder for core files of programs that a signal ends; "": none
    std::string gdb;            // --gdb: address to wait for gdb at; "": no debugger
    std::string request_file;   // debug --request; "": listen
    bool check_reset = false;   // --check-reset: compare the whole machine with the image after each reset
    std::string clock = "pauses"; // --clock: pauses, continues
    std::string fork = "auto";    // --fork: auto, follow, always, refuse
    std::string reset;            // --reset: "", auto, dirty-bits, working-set
    HugePages huge_pages;
    bool keep_working_memory = true; // cleared by --no-ephemeral-keep-working-memory

    // ++ storage: the second program, with permissions and limits of its own (src/setup/storage.hpp); null for none.
    std::shared_ptr<const Options> storage;
    bool one_to_one = false; // of `storage`: a machine of it for each request machine

    tinykvm::Permissions permissions;
    // Become those of Permissions, whichever permissions apply.
    std::vector<std::string> hidden;
    bool shared_network = false;
    tinykvm::Limits limits;
    std::vector<Ceilings> ceilings; // a function's permissions and limits are cut down to each of these
    // Long names of options that the user set on the command line or in the file. For all others, snaprun takes
    // permissions and limits from the snapshot.
    std::vector<std::string> given;
    Verbosity verbose;
    std::function<void(const PhaseNews&)> on_phase;   // in place of lines on stderr
    std::function<void(const SnapshotMade&)> on_made; // in place of a line on stdout
    NoteSink notes;                                   // empty: stderr
    std::function<void()> on_walls;                   // for tests: called inside the jail of `run` and `snaprun`
};

inline void tell_phase(const Options& options, const PhaseNews& news) {
    if (options.on_phase)
        options.on_phase(news);
}

// The commands. Each boots or restores, serves until SIGTERM/SIGINT or until the program ends, and returns the
// command's exit code. They throw tinykvm::UserError or tinykvm::HostError, which the CLI prints as one line.
int run_program(const Options& options);    // runner/run.cpp; with `dev`, runner/run_dev.cpp
int make_snapshot(const Options& options);  // capture/make_snapshot.cpp
int run_snapshot(const Options& options);   // runner/run_snapshot.cpp
int debug_snapshot(const Options& options); // runner/run_debug.cpp

} // namespace kvmserver
