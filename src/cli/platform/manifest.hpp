// Reads [run] and [function] of kvmserver.toml, for `deploy`. The machine options are read by `snapshot` and `snaprun`.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/cli/command.hpp"
#include "src/cli/options/config_file.hpp"
#include "src/store/functions/names.hpp"

namespace kvmserver::cli::platform {

struct Manifest {
    std::filesystem::path file, folder; // absolute
    std::string program;
    std::vector<std::string> args;
    std::string name; // "": not given
    std::string protocol = "http";
    bool is_http() const { return protocol == "http"; }
    std::optional<std::vector<store::Route>> routes;
    std::map<std::string, std::string> env;
    std::vector<std::string> secrets; // names
    std::string health;               // path; "": none
    std::string before_snapshot;      // the same
    bool kept = false;                // ephemeral = false: its machine keeps what requests change
    unsigned kept_machines = 1;       // then: how many such machines there are
    std::string build_command;        // "": none
    std::vector<std::string> watch;   // globs that `dev --watch` watches; none: the whole folder
    struct Storage {
        std::string function;           // its name; "": the function's with "-storage"
        std::string manifest;           // of that function: TOML
        std::optional<std::string> cwd; // as it is given
    };
    bool has_storage = false;       // there is a [function.storage]
    std::optional<Storage> storage; // [function.storage] with a program; its name in `json` is still to be set
    std::string shown;              // the file, for messages
    std::string json;               // the whole manifest, for the store
    std::vector<std::string> warnings;
    std::vector<UnknownKey> unknown;
};

// Throws UserError with file and line for invalid TOML, for values of a wrong type, and if there is no program.
Manifest read_manifest(const std::filesystem::path& file);

// Prints the manifest's warnings. Throws UserError (usage) for an unknown key if kStrict is given.
void report_warnings(const Manifest& manifest, const Invocation& invocation, Context& context);

} // namespace kvmserver::cli::platform
