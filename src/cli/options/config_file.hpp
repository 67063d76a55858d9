// The options file, kvmserver.toml: options by their long names at top level and, for one command, below [snapshot] and
// [snaprun]; [run], [storage], and [function] of later commands. toml++ reads it: CLI11 2.1.2 reads an array of several
// lines as several keys, cuts "a#b" at '#', and keeps no line numbers.
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

// [storage]: what `++ storage` on the command line says. Which options it may have is not looked at.
struct StorageSection {
    RunSection run;
    Settings settings;
    bool one_to_one = false;
    std::string where; // "kvmserver.toml:9: "
};

// A key that has no effect here.
struct UnknownKey {
    std::string what; // "kvmserver.toml:3: unknown key 'alow-read'"
    std::string hint; // "; did you mean allow-read?", or ""
};

struct ConfigFile {
    Settings settings;
    std::optional<RunSection> run;
    std::vector<std::string> function_env;  // "K=V" of [function.env]; read together with [run], as is
    std::optional<Setting> before_snapshot; // of [function.hooks]
    std::optional<StorageSection> storage;
    std::optional<StorageSection> function_storage; // of [function.storage], if it has a program
    std::vector<UnknownKey> unknown;
};

// Warns of each. Throws UserError (usage) for the first one instead if `refused`; its message ends with `why`.
void report_unknown(const std::vector<UnknownKey>& unknown, bool refused, const char* why, Context& context);

// The hint for a key of a section that is not `known` there.
std::string hint_in_section(const std::string& name, const std::vector<std::string>& known);

// Whose options replace those at top level. The others' are looked at, so that what is wrong is found.
enum class Section { none, snapshot, snaprun };

// Reads [run], [function.env] and the hook only when `with_run`; otherwise they are not even looked at. `shown` is the
// name for messages. Throws UserError with file and line for what is no TOML and for values of a wrong type.
ConfigFile parse_config(const std::string& text, const std::string& shown, std::span<const OptionSpec> options,
                        bool with_run, Section section = Section::none);
ConfigFile read_config(const std::string& path, std::span<const OptionSpec> options, bool with_run,
                       Section section = Section::none);

} // namespace kvmserver::cli
