// Everything `run`, `snapshot` and `snaprun` can be told, as plain values (made by src/cli).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/ceilings/ceilings.hpp"
#include "src/jail/walls.hpp"
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

struct Options {
    // The program (run, snapshot) or the snapshot file (snaprun).
    std::string program;           // as named by the user: a path or a name to look up in PATH
    std::vector<std::string> args; // without the program itself
    std::string snapshot_file;     // snapshot -o, snaprun
    std::string cwd;               // absolute
    std::vector<std::string>
        env; // "K=V" from --env; the host's variables allowed by permissions are added by the runner

    std::vector<std::string> late_env; // "K=V" from --late-env (run, snapshot): with room for another value

    unsigned threads = 1; // request machines; the CLI has turned 0 into the number of CPUs
    bool ephemeral = false;
    unsigned warmup = 0;
    bool warmup_auto = false;   // --warmup auto: until an invocation gets no cheaper
    double warmup_seconds = 10; // --max-warmup-time: of --warmup auto
    std::string warmup_path = "/";
    std::string listen;        // --listen: overrides the (first) listener's address; "" = as the program asked
    bool server_first = false; // --server-first: with -e a client gets a machine before it has said anything
    bool http = false;         // a clean machine for each HTTP request; implies ephemeral
    jail::Mode jail = jail::Mode::automatic; // --jail: of run, snaprun
    std::string cache;            // --cache: the folder of unpacked copies (src/snapshot/page_cache.hpp); "" for none
    bool temporary = false;       // the snapshot's file will not stay: no unpacked copy of it is worth keeping
    bool strict_unique = false;   // --strict-unique: no snapshot of a program whose random values would repeat
    bool stats = false;           // --stats: counters at exit, to stderr
    int level = 0;                // zstd level of snapshot; 0 = default
    std::string cpu;              // --cpu BASELINE: "", native, x86-64-v2, -v3, -v4
    bool code_as_is = false;      // --code-as-is: system calls in it are made where they are, not by stubs
    bool check_reset = false;     // --check-reset: compare the whole machine with the image after each reset
    std::string clock = "pauses"; // --clock: pauses, continues
    std::string reset;            // --reset: "", auto, dirty-bits, working-set
    bool keep_working_memory = true; // --no-ephemeral-keep-working-memory clears it

    tinykvm::Permissions permissions;
    std::vector<std::string> hidden; // Permissions::hidden, whichever permissions apply
    tinykvm::Limits limits;
    std::vector<Ceilings> ceilings; // of functions: a snapshot's permissions and limits are cut down to each of these
    // What the user set on the command line or in the file, by long name: snaprun takes the snapshot's own
    // permissions and limits for those that are not here.
    std::vector<std::string> given;
    Verbosity verbose;
    std::function<void()> on_walls; // for tests: called behind the walls of `run` and `snaprun`
};

// Each boots or restores, serves until SIGTERM/SIGINT or until the program ends, and returns the exit code of
// the command. They throw tinykvm::UserError / tinykvm::HostError; the CLI prints those as one line.
int run_program(const Options& options);   // runner/run.cpp
int make_snapshot(const Options& options); // capture/make_snapshot.cpp
int run_snapshot(const Options& options);  // runner/run_snapshot.cpp

} // namespace kvmserver
