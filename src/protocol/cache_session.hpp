// What one process of a function gets from the cache of unpacked pages, and what is taken from it. It may be
// broken: all that it says is checked, and what it hands over is kept only when its SHA-256 is as said.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/protocol/allowance.hpp"
#include "src/protocol/cache_messages.hpp"
#include "src/snapshot/folder_cache.hpp"

namespace kvmserver::protocol {

// For one thread.
class CacheSession {
public:
    // `bytes`: how much it, and all others of its version, may hand over.
    CacheSession(FolderCache folder, std::shared_ptr<Allowance> bytes)
        : folder_(std::move(folder)), bytes_(std::move(bytes)) {}

    struct Outcome {
        std::optional<std::vector<tinykvm::UniqueFd>> answer; // for protocol::send_answer
        std::string broken;     // not "": what no process says that is sound; it is to be heard no more
        std::uint64_t kept = 0; // bytes of copies that were made
    };
    // Files that are not what they should be are left in `request`.
    Outcome handle(CacheRequest& request, std::uint64_t now_ns);

private:
    Outcome find(const CacheRequest& request);
    Outcome keep(CacheRequest& request, std::uint64_t now_ns);

    FolderCache folder_;
    std::shared_ptr<Allowance> bytes_;
};

} // namespace kvmserver::protocol
