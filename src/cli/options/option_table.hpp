// Every option of `run`, `snapshot` and `snaprun`, one row each: the one source of parsing, help, the options
// file, --print-config and shell completion.
#pragma once
#include <span>
#include <string_view>

#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {

// For a command line that is wrong: ends the command with exit code `usage`.
[[noreturn]] inline void usage_error(const std::string& message) {
    throw tinykvm::UserError(tinykvm::ExitCode::usage, message);
}

enum class Kind {
    flag,          // --x, --x=true|false; in a file true or false
    optional_list, // --x (means `bare`) or --x=A,B; never takes the next word; in a file true, false, "A,B"
                   // or [..]
    repeated,      // --x V, as often as wanted, not split at commas; in a file "V" or [..]
    text,          // --x V
    count,         // a whole number
    count_or_word, // a whole number or a word; in a file a number or a string
    mib,           // a whole number of MiB
    seconds,       // a number, fractions allowed
};

// Sets of commands.
inline constexpr unsigned kRun = 1, kSnapshot = 2, kSnaprun = 4, kAll = 7;
inline constexpr unsigned kDebug = 8; // has most options of snaprun, and these

struct OptionSpec {
    std::string_view name; // long, without dashes
    char letter = 0;       // short, 0 for none
    Kind kind = Kind::flag;
    std::string_view group = ""; // in --help; "" is never shown
    std::string_view value = ""; // placeholder; "a|b|c" are the only values
    std::string_view fallback = "";
    std::string_view help = "";
    std::string_view bare = "";  // optional_list without a value
    unsigned offered = kAll;     // commands whose command line has it (a file may always have it)
    unsigned without_effect = 0; // commands that accept it and do nothing with it
    bool in_file = true;

    bool takes_value() const { return kind != Kind::flag && kind != Kind::optional_list; }
    bool is_list() const { return kind == Kind::optional_list || kind == Kind::repeated; }
};

// Of every command that reads an options file.
inline constexpr OptionSpec kStrict{.name = "strict",
                                    .group = "Options",
                                    .help = "refuse an options file with unknown keys, which else is a warning",
                                    .in_file = false};

// Hidden, of `snapshot` and `run`: a descriptor of the parent for events (src/cli/events/json_events.hpp).
inline constexpr std::string_view kEventsOption = "events";

// The group of options that the peer has and our design has no use for: shown by --help-all only.
inline constexpr std::string_view kCompatibility = "Accepted for compatibility, without effect";

std::span<const OptionSpec> machine_options();

// nullptr when there is none.
const OptionSpec* find_option(std::span<const OptionSpec> options, std::string_view name);
const OptionSpec* find_option(std::span<const OptionSpec> options, char letter);

} // namespace kvmserver::cli
