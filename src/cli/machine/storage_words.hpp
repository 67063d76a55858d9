// The storage program of run, snapshot and snaprun: the words after "++", which are storage [OPTIONS] PROGRAM
// [ARGS...], or [storage] of the options file.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/command.hpp"
#include "src/cli/options/config_file.hpp"

namespace kvmserver::cli {

// Whether the storage program can have this option.
bool is_storage_option(std::string_view name);
// Its options; the action is empty.
Command storage_command();

// Options::storage. Null: `--help` was asked for and printed. Throws UserError (usage).
std::shared_ptr<const Options> storage_options(const std::vector<std::string>& words, const Options& main,
                                               Context& context);
std::shared_ptr<const Options> storage_options(StorageSection section, const Options& main, Context& context);

} // namespace kvmserver::cli
