#include "src/runner/cache_client.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "src/protocol/cache_messages.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver {

using tinykvm::UniqueFd;

namespace {

protocol::CacheEntry entry_of(const CopyName& name) {
    return {name.sha256.bytes, static_cast<std::uint32_t>(name.bytes)};
}

// A sealed memfd with these pages; empty on failure.
UniqueFd sealed(std::span<const std::byte> pages) {
    UniqueFd file(::memfd_create("kvmserver-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file)
        return {};
    try {
        tinykvm::write_all(file.get(), pages, "a copy");
    } catch (const std::system_error&) { // no memory: go on without a copy
        return {};
    }
    return ::fcntl(file.get(), F_ADD_SEALS, protocol::cache_seals()) == 0 ? std::move(file) : UniqueFd();
}

} // namespace

CacheClient::~CacheClient() {
    if (!daemon_)
        return;
    constexpr int kMs = 1000;
    ::shutdown(daemon_.get(), SHUT_WR);
    pollfd other{daemon_.get(), 0, 0}; // POLLHUP: the other end is closed as well
    ::poll(&other, 1, kMs);
}

std::vector<UniqueFd> CacheClient::find_all(std::span<const CopyName> names) const {
    std::vector<UniqueFd> found(names.size());
    const std::lock_guard lock(asking_);
    for (std::size_t first = 0; first < names.size() && !ended_; first += protocol::kMaxCopies) {
        std::vector<protocol::CacheEntry> entries;
        for (const CopyName& name : names.subspan(first, std::min(protocol::kMaxCopies, names.size() - first)))
            entries.push_back(entry_of(name));
        auto some = protocol::send_request(daemon_.get(), protocol::CacheKind::find, entries)
                        ? protocol::receive_answer(daemon_.get(), entries.size())
                        : std::nullopt;
        if (some)
            std::ranges::move(*some, found.begin() + static_cast<std::ptrdiff_t>(first));
        else
            ended_ = true;
    }
    return found;
}

UniqueFd CacheClient::keep(const CopyName& name, std::span<const std::byte> pages) const {
    const UniqueFd file = ended_ ? UniqueFd() : sealed(pages);
    if (!file)
        return {};
    const protocol::CacheEntry entry = entry_of(name);
    const std::lock_guard lock(asking_);
    auto copy = protocol::send_request(daemon_.get(), protocol::CacheKind::keep, std::span(&entry, 1), file.get())
                    ? protocol::receive_answer(daemon_.get(), 1)
                    : std::nullopt;
    if (copy)
        return std::move(copy->front());
    ended_ = true;
    return {};
}

void CacheClient::offer(const CopyName& name, std::span<const std::byte> pages) const {
    const UniqueFd file = ended_ ? UniqueFd() : sealed(pages);
    if (!file)
        return;
    const protocol::CacheEntry entry = entry_of(name);
    // Wait until the previous offer was received: others may need the socket for requests.
    pollfd room{daemon_.get(), POLLOUT, 0};
    while (::poll(&room, 1, -1) < 0 && errno == EINTR) {
    }
    if (!protocol::send_request(daemon_.get(), protocol::CacheKind::offer, std::span(&entry, 1), file.get()))
        ended_ = true;
}

} // namespace kvmserver
