// Helper processes outside the jail of `run` and `snaprun` (own_jail.hpp). Each does one small task for the jailed
// process, trusts nothing that it says and ends with it. They must be started before the jail is entered.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "src/snapshot/folder_cache.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// Serves and stores copies of unpacked pages (src/protocol/cache_messages.hpp) for a CacheClient. It forks, and the
// child uses malloc and OpenSSL, whose locks another thread could hold at the fork: create it while there is no other
// thread.
class CacheOutside {
public:
    explicit CacheOutside(const FolderCache& cache); // throws HostError

    // Starts the service: at most `max_bytes` of new copies per hour. Returns the socket for requests. If this is
    // never called, the process ends with this object. Throws HostError.
    tinykvm::UniqueFd allow(std::uint64_t max_bytes) &&;

private:
    tinykvm::UniqueFd socket_;
};

// A function that tells whether a path exists on the host, for advice on permissions: inside the jail the host's files
// are not visible. Throws HostError.
std::function<bool(const std::string&)> existence_outside();

} // namespace kvmserver
