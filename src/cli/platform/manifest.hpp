// kvmserver.toml as `deploy` reads it: [run] and [function]. The options are for `snapshot` and `snaprun` to
// read.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/store/functions/names.hpp"

namespace kvmserver::cli::platform {

struct Manifest {
    std::filesystem::path file, folder; // absolute
    std::string program;
    std::vector<std::string> args;
    std::string name; // "" when it says none
    std::optional<std::vector<store::Route>> routes;
    std::map<std::string, std::string> env;
    std::vector<std::string> secrets; // names
    std::string health;               // path, "" when there is none
    std::string build_command;        // "" when there is none
    std::vector<std::string> watch;   // globs of what `dev --watch` builds for; none: the whole folder
    std::string json;                 // all of it, for the store
    std::vector<std::string> warnings;
};

// Throws UserError with file and line for what is no TOML, for values of a wrong type, and without a program.
Manifest read_manifest(const std::filesystem::path& file);

} // namespace kvmserver::cli::platform
