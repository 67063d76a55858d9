// The daemon's side of the page cache protocol for one function process: hands out copies and accepts new ones. The
// process may be compromised: every message is checked, and a copy is kept only if its SHA-256 is as claimed.
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

// Belongs to one thread.
class CacheSession {
public:
    // `bytes` limits how much this process and all others of its version may hand over.
    CacheSession(FolderCache folder, std::shared_ptr<Allowance> bytes)
        : folder_(std::move(folder)), bytes_(std::move(bytes)) {}

    struct Outcome {
        std::optional<std::vector<tinykvm::UniqueFd>> answer; // for protocol::send_answer
        std::string broken;     // if not empty: the protocol violation; the connection must be dropped
        std::uint64_t kept = 0; // bytes of copies that were stored
    };
    // On a violation the files stay in `request`.
    Outcome handle(CacheRequest& request, std::uint64_t now_ns);

private:
    Outcome find(const CacheRequest& request);
    Outcome keep(CacheRequest& request, std::uint64_t now_ns);

    FolderCache folder_;
    std::shared_ptr<Allowance> bytes_;
};

} // namespace kvmserver::protocol
