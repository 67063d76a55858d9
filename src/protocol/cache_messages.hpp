// What the process of a function says to the daemon about copies of unpacked pages
// (src/snapshot/page_cache.hpp), over a SEQPACKET socket of its own. Either may be broken: both check what they
// receive.
//
// `find` asks for up to kMaxCopies; `keep` hands one over, as a memfd that nobody can change any more. Both
// are answered, in their order, with one Answer: which there are, and a descriptor of each, open for reading
// only. The next of them is sent when the one before is answered. `offer` is as `keep`, without an answer.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/protocol/packet.hpp"

namespace kvmserver::protocol {

inline constexpr std::size_t kMaxCopies = 64; // in a message

enum class CacheKind : std::uint32_t { find = 1, keep, offer };

struct CacheEntry {
    std::array<std::uint8_t, 32> sha256{};
    std::uint32_t bytes = 0;
    bool operator==(const CacheEntry&) const = default;
};

// What the process's end may have on its way: it waits with `offer` while there is more, so that its own
// questions need not.
inline constexpr int kSendBytes = 4608; // the least that Linux gives (SOCK_MIN_SNDBUF)

// Seals of a memfd that is handed over (fcntl(2)).
int cache_seals();

struct CacheRequest {
    CacheKind kind = CacheKind::find;
    std::vector<CacheEntry> entries;
    std::vector<tinykvm::UniqueFd> files;
};
bool send_request(int socket, CacheKind kind, std::span<const CacheEntry> entries, int file = -1);

enum class Came { request, nothing, end, nonsense };
// Never waits. A copy that is handed over without a file had one, for which this process has no descriptor left. Of
// nonsense too `request` has the files: closing one that is not what it should be may take for ever.
Came receive_request(int socket, CacheRequest& request);

// `found`: one for each entry, in order; no descriptor: there is none. Never waits; false: it cannot be sent.
bool send_answer(int socket, std::span<const tinykvm::UniqueFd> found);
// Waits. `entries`: so many were asked for. Nothing: this socket is of no more use.
std::optional<std::vector<tinykvm::UniqueFd>> receive_answer(int socket, std::size_t entries);

} // namespace kvmserver::protocol
