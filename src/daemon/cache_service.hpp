// Gives the processes of functions copies of unpacked pages, and takes theirs (src/protocol/cache_messages.hpp). The
// cache folder is the daemon's: no process of a function can open it, and none can change what another one
// maps.
//
// One thread serves all. A process that is slow or broken costs the others one message of its own at a time,
// and this no more memory than one copy: it is answered once it has taken its last answer, may hand over only
// so much, and is heard again later when it asks too often.
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
    std::string name;             // "hello v4", for messages
    std::string tenant;           // whose copies it gets
    Digest snapshot;              // of its version
    std::uint64_t most_bytes = 0; // of all its pages
};

class CacheService {
public:
    // Names that a process may ask for at once, and how many more in a second.
    static constexpr std::uint64_t kMaxNames = 8192, kNamesASecond = 2048;

    // `tell`: a line about a process that is not heard any more; on this thread. Throws HostError.
    explicit CacheService(FolderCache folder, std::function<void(const std::string&)> tell = {});
    ~CacheService();
    CacheService(const CacheService&) = delete;
    CacheService& operator=(const CacheService&) = delete;

    // The process's end; no descriptor where the folder cannot be used. Any thread. Throws HostError.
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
    const std::function<void(const std::string&)> tell_;
    tinykvm::UniqueFd epoll_, wake_;
    std::mutex mutex_; // of what follows; a connection itself is the thread's
    std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
    std::map<Digest, std::shared_ptr<protocol::Allowance>> bytes_;
    std::uint64_t next_id_ = 1;
    // The thread's:
    std::multimap<std::uint64_t, std::uint64_t> silent_; // connections that ask too often, by when they are heard again
    std::uint64_t made_ = 0;                             // bytes of copies since there was made room
    std::thread thread_;
};

} // namespace kvmserver::daemon
