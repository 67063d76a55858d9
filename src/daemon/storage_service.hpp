// Connections of functions to their storage ([function.storage]): a process asks for each
// (src/protocol/storage_messages.hpp), and the daemon hands the other end of it to the function that is meant.
//
// One thread answers all. It never waits for a process, and a process gets its next answer only after it has taken the
// last one.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "src/protocol/storage_messages.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

struct StorageConnection {
    std::string from;    // "shop v4": whose program connects
    std::string storage; // the function that is to have it
    protocol::StorageRequest request;
    std::shared_ptr<const void> place; // to be held as long as it is open
};

class StorageService {
public:
    // Connections of a process that may be open at once.
    static constexpr unsigned kMaxOpen = 1024;
    // Takes a connection, or says why not. On this object's thread; must not block for long.
    using Connect = std::function<protocol::StorageAnswer(StorageConnection connection)>;

    // `report` gets a line about a process that was disconnected, on this object's thread. Throws HostError.
    StorageService(Connect connect, std::function<void(const std::string&)> report);
    ~StorageService() { end(); }
    StorageService(const StorageService&) = delete;
    StorageService& operator=(const StorageService&) = delete;

    // Returns the process's end of a new connection. `from`: as in StorageConnection. Any thread. Throws HostError.
    tinykvm::UniqueFd admit(const std::string& from, const std::string& storage);
    void end(); // answers no more; Connect is not running when this returns

private:
    struct Process {
        tinykvm::UniqueFd socket;
        std::string name, storage;
        std::shared_ptr<std::atomic<unsigned>> open = std::make_shared<std::atomic<unsigned>>(0);
    };

    void loop();
    void serve_one(std::uint64_t id, Process& process);
    void drop(std::uint64_t id, Process& process, const char* why, protocol::StorageRequest request);
    void forget(std::uint64_t id);

    const Connect connect_;
    const std::function<void(const std::string&)> report_;
    tinykvm::UniqueFd epoll_, wake_;
    std::mutex mutex_; // guards the following; a process's fields belong to the thread
    std::unordered_map<std::uint64_t, std::unique_ptr<Process>> processes_;
    std::uint64_t next_id_ = 1;
    std::thread thread_;
};

} // namespace kvmserver::daemon
