// One message of a SEQPACKET socket, with the descriptors beside it (SCM_RIGHTS, unix(7)).
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::protocol {

std::pair<tinykvm::UniqueFd, tinykvm::UniqueFd> make_pair(); // throws HostError

// What Linux takes in one message (SCM_MAX_FD).
inline constexpr std::size_t kMaxFiles = 253;

enum class Wait { yes, no };

// `bytes` and `more`, which follows them. Never raises SIGPIPE: false (errno) when it cannot be sent. kMaxFiles at
// most.
bool send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> files, Wait wait,
                 std::span<const std::byte> more = {});

struct Packet {
    std::size_t bytes = 0;
    std::vector<tinykvm::UniqueFd> files;
    bool cut = false;  // it was longer than the room for it
    bool lost = false; // so were its files, or this process may not have so many open
};
// Into `room`, and what is longer into `more`. Nothing: the other side has closed, or (Wait::no) nothing is there: then
// `again` is set. An empty message counts as the end. `files`: so many are taken.
std::optional<Packet> receive_packet(int socket, std::span<std::byte> room, std::size_t files, Wait wait,
                                     bool* again = nullptr, std::span<std::byte> more = {});

} // namespace kvmserver::protocol
