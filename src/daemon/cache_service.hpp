// Serves copies of unpacked pages to function processes and takes copies from them (src/protocol/cache_messages.hpp).
// Only the daemon has access to the cache folder: a function process cannot open it or change what another one maps.
//
// One thread serves all. A slow or compromised process delays the others by one message at a time, and costs the daemon
// the memory of one copy. It gets its next answer only after it has taken the last one. It may hand over a limited
// number of bytes, and is paused when it asks too often.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "src/common/digest.hpp"
#include "src/protocol/cache_session.hpp"

namespace kvmserver::daemon {

struct CacheGuest {
    std::string name;            // "hello v4", for messages
    std::string tenant;          // whose copies it gets
    Digest snapshot;             // of its version
    std::uint64_t max_bytes = 0; // size of all pages of the snapshot
};

class CacheService {
public:
    // Names that a process may ask for in a burst, and how many more per second.
    static constexpr std::uint64_t kMaxNames = 8192, kNamesASecond = 2048;

    // `report` gets a line about a process that was disconnected, on this object's thread. Throws HostError.
    explicit CacheService(FolderCache folder, std::function<void(const std::string&)> report = {});
    ~CacheService();
    CacheService(const CacheService&) = delete;
    CacheService& operator=(const CacheService&) = delete;

    // Returns the process's end of a new connection, or nothing if the folder is not usable. Any thread. Throws
    // HostError.
    tinykvm::UniqueFd connect(const CacheGuest& guest);

private:
    struct Connection {
        tinykvm::UniqueFd socket;
        std::string name;
        protocol::CacheSession session;
        protocol::Allowance names;
    };

    std::shared_ptr<protocol::Allowance> bytes_of(const CacheGuest& guest);
    void loop();
    void serve_one(std::uint64_t id, Connection& connection);
    void drop(std::uint64_t id, Connection& connection, const std::string& why, protocol::CacheRequest request);
    void forget(std::uint64_t id, Connection& connection);
    void listen_again(std::uint64_t now_ns);
    int patience(std::uint64_t now_ns) const;
    void tidy();

    const FolderCache folder_;
    const std::function<void(const std::string&)> report_;
    tinykvm::UniqueFd epoll_, wake_;
    std::mutex mutex_; // guards the following; a connection's fields belong to the thread
    std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
    std::map<Digest, std::shared_ptr<protocol::Allowance>> bytes_;
    std::uint64_t next_id_ = 1;
    // Used by the thread only:
    // Connections that ask too often, by the time when they are polled again.
    std::multimap<std::uint64_t, std::uint64_t> throttled_;
    std::uint64_t made_ = 0; // bytes of copies stored since the last make_room()
    std::thread thread_;
};

} // namespace kvmserver::daemon
