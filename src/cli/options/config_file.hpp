// The options file, kvmserver.toml: options by their long names at top level, [run], and tables of later
// commands. toml++ reads it: CLI11 2.1.2 reads an array of several lines as several keys, cuts "a#b" at '#',
// and keeps no line numbers.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/cli/options/option_table.hpp"
#include "src/cli/options/settings.hpp"

namespace kvmserver::cli {

struct Context;

// [run]: what `kvmserver` without a command runs.
struct RunSection {
    std::string program;
    std::vector<std::string> args;
};

struct ConfigFile {
    Settings settings;
    std::optional<RunSection> run;
    std::vector<std::string> warnings; // unknown keys, one line each
};

// Prints warnings. Throws UserError (usage) for the first one instead if `strict` (kStrict).
void report_warnings(const std::vector<std::string>& warnings, bool strict, Context& context);

// Reads [run] only when `with_run`; otherwise it is not even looked at. `shown` is the name for messages.
// Throws UserError with file and line for what is no TOML and for values of a wrong type.
ConfigFile parse_config(const std::string& text, const std::string& shown, std::span<const OptionSpec> options,
                        bool with_run);
ConfigFile read_config(const std::string& path, std::span<const OptionSpec> options, bool with_run);

} // namespace kvmserver::cli
