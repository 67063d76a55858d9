#include "src/protocol/cache_messages.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

namespace kvmserver::protocol {

namespace {

struct RequestHead {
    CacheKind kind;
    std::uint32_t count;
};
static_assert(sizeof(CacheEntry) == 36);
constexpr std::size_t kMaxRequest = sizeof(RequestHead) + kMaxCopies * sizeof(CacheEntry);

static_assert(kMaxRequest + 32 <= kSendBytes); // else it could not be sent

bool is_sound(const CacheRequest& request, bool lost) {
    switch (request.kind) {
    case CacheKind::find: return request.files.empty() && !lost;
    case CacheKind::keep:
    case CacheKind::offer: return request.entries.size() == 1 && request.files.size() == (lost ? 0 : 1);
    }
    return false;
}

} // namespace

int cache_seals() { return F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL; }

bool send_request(int socket, CacheKind kind, std::span<const CacheEntry> entries, int file) {
    const RequestHead head{kind, static_cast<std::uint32_t>(entries.size())};
    std::vector<std::byte> bytes(sizeof head + entries.size_bytes());
    std::memcpy(bytes.data(), &head, sizeof head);
    std::ranges::copy(std::as_bytes(entries), bytes.begin() + sizeof head);
    return send_packet(socket, bytes, std::span(&file, file >= 0 ? 1 : 0), Wait::yes);
}

Came receive_request(int socket, CacheRequest& request) {
    std::array<std::byte, kMaxRequest> bytes;
    bool again = false;
    auto packet = receive_packet(socket, bytes, kMaxFiles, Wait::no, &again);
    request = {};
    if (!packet)
        return again ? Came::nothing : Came::end;
    request.files = std::move(packet->files);
    RequestHead head;
    if (packet->cut || packet->bytes < sizeof head)
        return Came::nonsense;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.count == 0 || head.count > kMaxCopies || packet->bytes != sizeof head + head.count * sizeof(CacheEntry))
        return Came::nonsense;
    request.kind = head.kind;
    request.entries.resize(head.count);
    std::memcpy(request.entries.data(), bytes.data() + sizeof head, head.count * sizeof(CacheEntry));
    return is_sound(request, packet->lost) ? Came::request : Came::nonsense;
}

bool send_answer(int socket, std::span<const tinykvm::UniqueFd> found) {
    std::array<std::byte, kMaxCopies> there{};
    std::vector<int> files;
    for (std::size_t i = 0; i < found.size(); ++i)
        if (found[i]) {
            there[i] = std::byte{1};
            files.push_back(found[i].get());
        }
    return send_packet(socket, std::span(there).first(found.size()), files, Wait::no);
}

std::optional<std::vector<tinykvm::UniqueFd>> receive_answer(int socket, std::size_t entries) {
    std::array<std::byte, kMaxCopies> there{};
    auto packet = receive_packet(socket, there, kMaxCopies, Wait::yes);
    if (!packet || packet->bytes != entries || packet->cut)
        return std::nullopt;
    std::vector<tinykvm::UniqueFd> found(entries);
    if (packet->lost) // this process has no free descriptors: it does without the copies
        return found;
    auto file = packet->files.begin();
    for (std::size_t i = 0; i < entries; ++i)
        if (there[i] != std::byte{0}) {
            if (file == packet->files.end())
                return std::nullopt;
            found[i] = std::move(*file++);
        }
    return file == packet->files.end() ? std::optional(std::move(found)) : std::nullopt;
}

} // namespace kvmserver::protocol
