// What a process that the daemon started is told first, and how it answers (src/protocol/worker_messages.hpp).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/jail/plan.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// What comes first: nothing of a stranger's has been read yet. Nothing: the daemon has no use for us.
std::optional<jail::Plan> receive_plan(int control);
// Nothing: the daemon has no use for it. Throws UserError when they are more files than this process may have
// open.
std::optional<std::vector<tinykvm::UniqueFd>> receive_pieces(int control, const std::string& name);
void answer(int control, const std::string& text); // throws HostError

} // namespace kvmserver
