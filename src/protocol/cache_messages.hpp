// Messages of a function process to the daemon about copies of unpacked pages (src/snapshot/page_cache.hpp), over a
// SEQPACKET socket of their own. Either side may be compromised: both check what they receive.
//
// `find` asks for up to kMaxCopies copies. `keep` hands one over as a sealed memfd. Each is answered in order with one
// answer: which copies exist, and a read-only descriptor for each. A process sends its next request after the answer to
// the one before. `offer` is like `keep`, but without an answer.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/protocol/packet.hpp"

namespace kvmserver::protocol {

inline constexpr std::size_t kMaxCopies = 64; // per message

enum class CacheKind : std::uint32_t { find = 1, keep, offer };

struct CacheEntry {
    std::array<std::uint8_t, 32> sha256{};
    std::uint32_t bytes = 0;
    bool operator==(const CacheEntry&) const = default;
};

// Send buffer of the process's end. Further `offer` messages block once it is full, so that the process's own requests
// need not wait behind many of them.
inline constexpr int kSendBytes = 4608; // the minimum that Linux allows (SOCK_MIN_SNDBUF)

// The seals that a memfd must have to be handed over (fcntl(2)).
int cache_seals();

struct CacheRequest {
    CacheKind kind = CacheKind::find;
    std::vector<CacheEntry> entries;
    std::vector<tinykvm::UniqueFd> files;
};
bool send_request(int socket, CacheKind kind, std::span<const CacheEntry> entries, int file = -1);

enum class Came { request, nothing, end, nonsense };
// Never blocks. A `keep` or `offer` without a file had one that this process had no free descriptor for. `request`
// receives the files even on `nonsense`: the caller must close them, and closing a file of unknown kind may block for
// ever.
Came receive_request(int socket, CacheRequest& request);

// `found` has one element per entry, in order; an empty one means that there is no copy. Never blocks; false if it
// cannot be sent.
bool send_answer(int socket, std::span<const tinykvm::UniqueFd> found);
// Blocks. `entries` is the number of copies asked for. Returns nothing if the socket is no longer usable.
std::optional<std::vector<tinykvm::UniqueFd>> receive_answer(int socket, std::size_t entries);

} // namespace kvmserver::protocol
