// One message of a SEQPACKET socket, with its descriptors (SCM_RIGHTS, unix(7)).
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::protocol {

std::pair<tinykvm::UniqueFd, tinykvm::UniqueFd> make_pair(); // throws HostError

// The most descriptors that Linux takes in one message (SCM_MAX_FD).
inline constexpr std::size_t kMaxFiles = 253;

enum class Wait { yes, no };

// Sends `bytes` followed by `more`, and at most kMaxFiles descriptors. Never raises SIGPIPE; returns false (errno is
// set) on failure.
bool send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> files, Wait wait,
                 std::span<const std::byte> more = {});

struct Packet {
    std::size_t bytes = 0;
    std::vector<tinykvm::UniqueFd> files;
    bool cut = false;  // longer than the room for it
    bool lost = false; // some descriptors are missing: there were too many, or this process has none free
};
// Receives into `room` and, beyond it, into `more`, and takes up to `files` descriptors. Returns nothing when the other
// side has closed, on an empty message, or (Wait::no) when nothing has arrived; only then `again` is true.
std::optional<Packet> receive_packet(int socket, std::span<std::byte> room, std::size_t files, Wait wait,
                                     bool* again = nullptr, std::span<std::byte> more = {});

} // namespace kvmserver::protocol
