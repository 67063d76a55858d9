// Texts to and from a process, and the files of a snapshot in the store (src/protocol/worker_messages.hpp).
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "src/protocol/worker_messages.hpp"
#include "src/store/snapshots/piece_files.hpp"

namespace kvmserver::daemon {

// A message with a file that holds the text. Throws HostError.
void send_text(int control, protocol::Kind kind, const std::string& text);
void send_text(int control, const protocol::Message& message, const std::string& text);
// The text of its next message, which it may change meanwhile. Nothing: it has ended, is not done in time, or says
// something else. Throws HostError.
std::optional<std::string> receive_text(int control, protocol::Kind kind, std::size_t most_bytes,
                                        std::chrono::milliseconds patience);
// The list of its pieces, as src/snapshot/byte_source.hpp has it.
std::string list_of(const store::PieceFiles& snapshot);
// A process has each piece open for as long as it lives, which leaves it few files for all else where a process may
// have few. Throws UserError.
void require_open_files(const std::string& name, const store::PieceFiles& snapshot);
// In as many messages as it takes. Throws HostError.
void send_pieces(int control, const store::PieceFiles& snapshot);

} // namespace kvmserver::daemon
