// What stays outside of the jail of `run` and `snaprun` (own_jail.hpp): processes that do one small thing each for the
// one inside, and trust nothing that it says. They end with it. To be made before the jail.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "src/snapshot/folder_cache.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// Gives and makes copies of unpacked pages (src/protocol/cache_messages.hpp), for a CacheClient. Its process works with
// memory and OpenSSL, whose locks another thread may hold at a fork: to be made while there is no other thread.
class CacheOutside {
public:
    explicit CacheOutside(const FolderCache& cache); // throws HostError

    // So many bytes within an hour; the end to ask at. Without this call the process ends with this. Throws HostError.
    tinykvm::UniqueFd allow(std::uint64_t most_bytes) &&;

private:
    tinykvm::UniqueFd socket_;
};

// Whether a path of the host exists, for advice on permissions: inside there is nothing to be seen of it. Throws
// HostError.
std::function<bool(const std::string&)> existence_outside();

} // namespace kvmserver
