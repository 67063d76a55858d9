// Sends and receives texts and a snapshot's files (src/protocol/worker_messages.hpp).
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "src/protocol/worker_messages.hpp"
#include "src/store/snapshots/piece_files.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// Sends a message with a file that holds the text. Throws HostError.
void send_text(int control, protocol::Kind kind, const std::string& text);
void send_text(int control, const protocol::Message& message, const std::string& text);
// Receives the text of the process's next message; the process may change the file meanwhile. Returns nothing if the
// process has ended, sent something else, or did not answer in time. Throws HostError.
std::optional<std::string> receive_text(int control, protocol::Kind kind, std::size_t max_bytes,
                                        std::chrono::milliseconds patience);
// By the number of a piece: whether its file comes later. Empty: none does.
using ComesLater = std::vector<bool>;
struct ComingPieces {
    ComesLater pieces;
    tinykvm::UniqueFd link; // for the process
};
// The list of its pieces, in the format of src/snapshot/byte_source.hpp.
std::string list_of(const store::PieceFiles& snapshot, const ComesLater& later = {});
// Checks the limit of open files: a process keeps every piece open for its whole life and needs descriptors for all
// else too. Throws UserError.
void require_open_files(const std::string& name, const store::PieceFiles& snapshot);
// Sends all pieces that do not come later, in as many messages as needed, and `link`, where those come; -1: they do
// not. Throws HostError, and what PieceFiles::open_piece() throws.
void send_pieces(int control, const store::PieceFiles& snapshot, const ComesLater& later = {}, int link = -1);

} // namespace kvmserver::daemon
