// "Did you mean": for the name of a function that there is not.
#pragma once
#include <string>

#include "src/cli/command.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::platform {

// "; did you mean NAME?" if `error` says that there is no function of the name in an operand, and one is nearly called
// so; otherwise "". Asks the store or the daemon again, which only tells names that this user may see.
std::string similar_function(const tinykvm::UserError& error, const Command& command, const Invocation& invocation,
                             Context& context);

} // namespace kvmserver::cli::platform
