// A client of the daemon's cache of unpacked pages (src/protocol/cache_messages.hpp).
#pragma once
#include <atomic>
#include <mutex>

#include "src/snapshot/page_cache.hpp"

namespace kvmserver {

class CacheClient final : public PageCache {
public:
    // `daemon`: the socket to the daemon; empty: there is no cache.
    explicit CacheClient(tinykvm::UniqueFd daemon) : daemon_(std::move(daemon)), ended_(!daemon_) {}
    // Waits, at most for a second, until what was offered is stored: who ends a process may remove its cache then.
    ~CacheClient() override;

    bool usable() const override { return !ended_; }
    std::vector<tinykvm::UniqueFd> find_all(std::span<const CopyName> names) const override;
    tinykvm::UniqueFd keep(const CopyName& name, std::span<const std::byte> pages) const override;
    void offer(const CopyName& name, std::span<const std::byte> pages) const override;
    void make_room() const override {} // the daemon makes room
    std::string where() const override { return "the daemon's cache"; }

private:
    const tinykvm::UniqueFd daemon_;
    mutable std::mutex asking_; // held from a request to its answer
    mutable std::atomic<bool> ended_;
};

} // namespace kvmserver
