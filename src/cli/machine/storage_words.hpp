// The words after "++" of run, snapshot and snaprun: storage [OPTIONS] PROGRAM [ARGS...]
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

// Its options; the action is empty.
Command storage_command();

// Options::storage. Null: `--help` was asked for and printed. Throws UserError (usage).
std::shared_ptr<const Options> storage_options(const std::vector<std::string>& words, const Options& main,
                                               Context& context);

} // namespace kvmserver::cli
