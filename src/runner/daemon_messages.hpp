// The first messages to a process that the daemon started, and its answer (src/protocol/worker_messages.hpp).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/jail/plan.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// Receives the jail's plan, before any untrusted data is read. Returns nothing if the daemon closed the socket.
std::optional<jail::Plan> receive_plan(int control);
struct ReceivedPieces {
    std::vector<tinykvm::UniqueFd> files;
    tinykvm::UniqueFd later; // where the others come; empty if these are all
};
// Receives the files of a snapshot's pieces. Returns nothing if the daemon closed the socket. Throws UserError if this
// process may not have that many files open.
std::optional<ReceivedPieces> receive_pieces(int control, const std::string& name);
void answer(int control, const std::string& text); // throws HostError

} // namespace kvmserver
