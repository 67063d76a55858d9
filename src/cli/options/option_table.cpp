#include "src/cli/options/option_table.hpp"

#include <algorithm>

namespace kvmserver::cli {
namespace {

constexpr std::string_view kOptions = "Options";
constexpr std::string_view kPermissions = "Permissions (none by default)";
constexpr std::string_view kLimits = "Limits";
constexpr std::string_view kMemory = "Huge pages";
constexpr std::string_view kServing = "Serving";
constexpr std::string_view kDiagnostics = "Diagnostics";

constexpr OptionSpec compatible(std::string_view name, Kind kind, std::string_view value = "",
                                std::string_view fallback = "") {
    return {.name = name,
            .kind = kind,
            .group = kCompatibility,
            .value = value,
            .fallback = fallback,
            .without_effect = kAll};
}

// clang-format off
constexpr OptionSpec kTable[] = {
    {.name = "config", .letter = 'c', .kind = Kind::text, .group = kOptions, .value = "FILE",
     .help = "options file (kvmserver.toml in the current folder, if it is there)", .in_file = false},
    {.name = "print-config", .group = kOptions, .help = "print the effective options as TOML and stop",
     .in_file = false},
    kStrict,
    {.name = "output", .letter = 'o', .kind = Kind::text, .group = kOptions, .value = "FILE",
     .help = "the snapshot to write (required)", .offered = kSnapshot},
    {.name = "json", .group = kOptions, .help = "print events and the result, one JSON object a line",
     .offered = kSnapshot, .in_file = false},
    {.name = "cwd", .kind = Kind::text, .group = kOptions, .value = "DIR",
     .help = "the program's current folder ($PWD)", .without_effect = kSnaprun},
    {.name = "env", .kind = Kind::repeated, .group = kOptions, .value = "K=V",
     .help = "set an environment variable (repeatable); snaprun: of --late-env"},
    {.name = "late-env", .kind = Kind::repeated, .group = kOptions, .value = "K[=V]",
     .help = "the same, for `snaprun --env` to change", .without_effect = kSnaprun},
    {.name = "warmup", .letter = 'w', .kind = Kind::count_or_word, .group = kOptions, .value = "N",
     .fallback = "0", .help = "send N requests of each path first; auto: while they help", .without_effect = kSnaprun},
    {.name = "max-warmup-time", .kind = Kind::seconds, .group = kOptions, .value = "SEC", .fallback = "10",
     .help = "that `--warmup auto` may take", .without_effect = kSnaprun},
    {.name = "warmup-path", .kind = Kind::repeated, .group = kOptions, .value = "PATH", .fallback = "/",
     .help = "path of the warm-up requests (repeatable)", .without_effect = kSnaprun},
    {.name = "warmup-requests", .kind = Kind::text, .group = kOptions, .value = "FILE",
     .help = "warm-up requests with method, headers and body (.http)", .without_effect = kSnaprun},
    {.name = "before-snapshot", .kind = Kind::text, .group = kOptions, .value = "PATH",
     .help = "POST this path first: the program forgets what must not be saved", .without_effect = kSnaprun},
    {.name = "clock", .kind = Kind::text, .group = kOptions, .value = "pauses|continues", .fallback = "pauses",
     .help = "monotonic clock between image and request"},
    {.name = "fork", .kind = Kind::text, .group = kOptions, .value = "auto|follow|always|refuse", .fallback = "auto",
     .help = "a child goes on in its place"},
    {.name = "cpu", .kind = Kind::text, .group = kOptions, .value = "native|x86-64-v2|x86-64-v3|x86-64-v4",
     .fallback = "native", .help = "CPU features to show", .without_effect = kSnaprun},
    {.name = "code-as-is", .group = kOptions, .help = "for programs that check their own code: "
             "leave it unchanged (slower)"},
    {.name = "level", .kind = Kind::count, .group = kOptions, .value = "N",
     .help = "zstd level of the snapshot, 1 to 22", .offered = kSnapshot},
    {.name = "cache", .kind = Kind::text, .group = kOptions, .value = "DIR|none",
     .help = "keep snapshots unpacked there (~/.cache/kvmserver)", .offered = kSnapshot | kSnaprun},
    {.name = "jail", .kind = Kind::text, .group = kOptions, .value = "auto|strict|off", .fallback = "auto",
     .help = "walls around this process (docs/SECURITY.md)", .without_effect = kSnapshot,
     .in_file = false},
    {.name = "strict-unique", .group = kOptions, .help = "refuse a program whose random values "
             "would repeat in every request",
     .without_effect = kRun | kSnaprun},
    {.name = "temporary", .help = "the file will not stay", .offered = kSnapshot, .in_file = false}, // for `deploy`
    {.name = "hurry", .help = "compressed anew later", .offered = kSnapshot, .in_file = false}, // for `deploy`
    {.name = "early", .kind = Kind::text, .value = "FILE", .help = "a snapshot from before --warmup auto",
     .offered = kSnapshot, .in_file = false}, // for `deploy`
    {.name = "parent", .kind = Kind::count, .value = "FD", .help = "a socket, for --early", .offered = kSnapshot,
     .in_file = false}, // for `deploy`
    {.name = kEventsOption, .kind = Kind::count, .value = "FD", .help = "where its events go",
     .offered = kRun | kSnapshot, .in_file = false}, // for `deploy` and `dev`
    {.name = "dev", .help = "serve what a snapshot would hold", .offered = kRun, .in_file = false}, // for `dev`
    {.name = "dev-direct", .help = "as --dev, without the HTTP front", .offered = kRun,
     .in_file = false}, // for `dev`

    {.name = "ephemeral", .letter = 'e', .group = kServing, .help = "reset the machine after each connection",
     .without_effect = kSnapshot},
    {.name = "server-first", .group = kServing,
     .help = "the program speaks first (SMTP, MySQL): no waiting for the client in -e",
     .without_effect = kSnapshot},
    {.name = "threads", .letter = 't', .kind = Kind::count, .group = kServing, .value = "N", .fallback = "1",
     .help = "request machines; 0 = number of CPUs", .without_effect = kSnapshot},
    {.name = "listen", .kind = Kind::text, .group = kServing, .value = "ADDR",
     .help = "listen here (:8080, unix:/path), not where the program asks"},
    {.name = "reset", .kind = Kind::text, .group = kServing, .value = "auto|dirty-bits|working-set",
     .fallback = "auto", .help = "how a machine is reset", .without_effect = kSnapshot},
    {.name = "http", .group = kServing, .help = "keep clients' connections, "
             "and reset the machine after each HTTP request",
     .without_effect = kSnapshot},

    {.name = "allow-all", .group = kPermissions, .help = "everything; excludes the other permissions"},
    {.name = "allow-read", .kind = Kind::optional_list, .group = kPermissions, .value = "PATHS",
     .help = "read files and folders; alone: /", .bare = "/"},
    {.name = "allow-write", .kind = Kind::optional_list, .group = kPermissions, .value = "PATHS",
     .help = "read and write files and folders; alone: /", .bare = "/"},
    {.name = "allow-env", .kind = Kind::optional_list, .group = kPermissions, .value = "NAMES",
     .help = "see environment variables, as A,B_*; alone: all", .bare = "*",
     .without_effect = kSnaprun},
    {.name = "allow-net", .kind = Kind::optional_list, .group = kPermissions, .value = "ADDRS",
     .help = "connect and listen, as host:port or :port; alone: anywhere", .bare = "*"},
    {.name = "allow-connect", .kind = Kind::optional_list, .group = kPermissions, .value = "ADDRS",
     .help = "connect only", .bare = "*"},
    {.name = "allow-listen", .kind = Kind::optional_list, .group = kPermissions, .value = "ADDRS",
     .help = "listen only, also as unix:/path", .bare = "*"},
    {.name = "volume", .kind = Kind::repeated, .group = kPermissions, .value = "HOST:GUEST[:rwx]",
     .help = "show a host folder at another path (repeatable, or with commas; r)"},

    {.name = "max-boot-time", .kind = Kind::seconds, .group = kLimits, .value = "SECONDS", .fallback = "60",
     .help = "until it waits for clients; `run` without -e: if given", .without_effect = kSnaprun},
    {.name = "no-listen", .group = kLimits, .help = "the program is no server: no limit on its boot time",
     .offered = kRun, .without_effect = kSnapshot | kSnaprun},
    {.name = "max-request-time", .kind = Kind::seconds, .group = kLimits, .value = "SECONDS", .fallback = "8",
     .help = "without progress: computing, or waiting for nothing"},
    {.name = "max-request-total", .kind = Kind::seconds, .group = kLimits, .value = "SECONDS", .fallback = "300",
     .help = "for one request, with all its waiting"},
    {.name = "max-request-cpu", .kind = Kind::seconds, .group = kLimits, .value = "SECONDS",
     .help = "CPU time of one request, with -e or as a function; else no limit"},
    {.name = "max-main-memory", .kind = Kind::mib, .group = kLimits, .value = "MIB", .fallback = "8192",
     .help = "all of a machine's memory"},
    {.name = "max-address-space", .kind = Kind::mib, .group = kLimits, .value = "MIB", .fallback = "122880",
     .help = "virtual addresses that may be mapped"},
    {.name = "max-request-memory", .kind = Kind::mib, .group = kLimits, .value = "MIB", .fallback = "128",
     .help = "memory that one request may change or add"},
    {.name = "limit-request-memory", .kind = Kind::mib, .group = kLimits, .value = "MIB", .fallback = "128",
     .help = "memory that a machine keeps between requests"},
    {.name = "no-executable-heap", .group = kLimits, .help = "memory from brk is never executable"},
    {.name = "no-ephemeral-keep-working-memory", .group = kLimits,
     .help = "give all memory of a request back at the reset"},

    {.name = "hugepages", .group = kMemory, .help = "main memory in huge pages of the host",
     .without_effect = kSnapshot},
    {.name = "transparent-hugepages", .group = kMemory, .help = "the same, and none that the host has reserved",
     .without_effect = kSnapshot},
    {.name = "hugepage-arena-size", .kind = Kind::mib, .group = kMemory, .value = "MIB", .fallback = "0",
     .help = "only the first MIB of main memory", .without_effect = kSnapshot},
    {.name = "hugepage-requests-arena", .kind = Kind::mib, .group = kMemory, .value = "MIB", .fallback = "0",
     .help = "of what a request adds, this much in huge pages"},

    {.name = "verbose", .letter = 'v', .group = kDiagnostics, .help = "say what happens, and each refusal"},
    {.name = "verbose-syscalls", .group = kDiagnostics, .help = "trace system calls"},
    {.name = "verbose-mmap-syscalls", .group = kDiagnostics, .help = "trace those of the memory map"},
    {.name = "verbose-thread-syscalls", .group = kDiagnostics, .help = "trace those of threads"},
    {.name = "verbose-pagetables", .group = kDiagnostics, .help = "trace page-table changes"},
    {.name = "stats", .group = kDiagnostics, .help = "print counters to stderr at the end",
     .without_effect = kSnapshot},
    {.name = "gdb", .kind = Kind::text, .group = kDiagnostics, .value = "ADDR",
     .help = "wait there for gdb (127.0.0.1:PORT, unix:PATH)", .offered = kRun | kDebug, .in_file = false},
    {.name = "request", .kind = Kind::text, .group = kDiagnostics, .value = "FILE",
     .help = "the bytes of the one request; else it listens", .offered = kDebug, .in_file = false},
    {.name = "core-dump", .kind = Kind::text, .group = kDiagnostics, .value = "DIR",
     .help = "write a core file there when a signal ends the program", .without_effect = kSnapshot},
    {.name = "check-reset", .group = kDiagnostics, .help = "compare the machine with its image after each reset",
     .without_effect = kSnapshot},

    compatible("shared-memory", Kind::mib, "MIB", "0"),
    compatible("heap-address-hint", Kind::mib, "MIB", "256"),
    compatible("dylink-address-hint", Kind::mib, "MIB", "2"),
    compatible("remapping", Kind::repeated, "VIRT:SIZE[:PHYS][:rwx]"),
    compatible("no-mmap-backed-files", Kind::flag),
    compatible("no-split-hugepages", Kind::flag),
};
// clang-format on

} // namespace

std::span<const OptionSpec> machine_options() { return kTable; }

const OptionSpec* find_option(std::span<const OptionSpec> options, std::string_view name) {
    const auto at = std::ranges::find(options, name, &OptionSpec::name);
    return at == options.end() ? nullptr : &*at;
}

const OptionSpec* find_option(std::span<const OptionSpec> options, char letter) {
    const auto at = std::ranges::find(options, letter, &OptionSpec::letter);
    return letter == 0 || at == options.end() ? nullptr : &*at;
}

} // namespace kvmserver::cli
