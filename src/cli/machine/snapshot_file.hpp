// A snapshot that the user names: a file, or a function or version of the store.
#pragma once
#include <string>

#include "src/cli/command.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli {

struct FoundSnapshot {
    std::string shown;      // as the user named it
    tinykvm::UniqueFd copy; // a memfd with the snapshot from the store
    std::string path;
};

// Of the first operand. Throws UserError.
FoundSnapshot find_snapshot_file(const Invocation& invocation, Context& context);

} // namespace kvmserver::cli
