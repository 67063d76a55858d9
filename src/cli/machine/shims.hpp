// Version managers (pyenv, rbenv, asdf, mise, volta ...) put shims into PATH: programs that look up which version is
// wanted, and replace themselves with it by execve, which machines do not have. So kvmserver asks the manager itself.
#pragma once
#include <optional>
#include <string>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

struct Shim {
    std::string path;    // of the shim
    std::string manager; // absolute path of the manager's own program
    std::string name;    // of the program that it stands for
};

// The shim at `path`, or nothing if it is another program. `search_path`: where a manager without a path is.
std::optional<Shim> shim_at(const std::string& path, const std::string& search_path);

// Asks managers which programs `options.program` and the interpreter of its script are, if they are shims in PATH, and
// fills in `options.substitutes`. Runs only managers of shims that are in PATH, never what a path leads to.
// Throws UserError if the manager knows none, and for a shim that was given by its path.
void substitute_shims(Options& options, Context& context);

} // namespace kvmserver::cli
