// Who is connected: how many connections there are in all and of each client, and which of them gives way when
// there are too many.
//
// When all places are taken, a new connection gets that of one between requests whose client has most of them: a
// client that takes all there are does not keep others out.
#pragma once
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "src/http/observer.hpp"

namespace kvmserver::http {

// An IPv4 address, the first 64 bits of an IPv6 address (what one subscriber has), or "" for a Unix socket.
std::string client_key(const sockaddr_storage& address);
bool is_loopback(const std::string& key);

struct ConnectionLimits {
    std::uint64_t in_all = 0;     // 0: no limit
    std::uint64_t per_client = 0; // 0: no limit; not for Unix sockets
    bool spare_loopback = true;   // per_client is not for this host's own clients: a proxy may be one
};

class ConnectionTable {
public:
    explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}
    ConnectionTable(const ConnectionTable&) = delete;
    ConnectionTable& operator=(const ConnectionTable&) = delete;

    // Of one connection, from when it was accepted until it is closed. The table outlives it.
    class Place {
    public:
        ~Place();
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        // Called on any thread, at most once for each stay(): the connection is to close unless a request has come.
        void on_give_way(std::function<void()> told);
        void stay(); // one has
        void busy() { idle_since_.store(0, std::memory_order_relaxed); }
        void idle();

    private:
        friend class ConnectionTable;
        Place(ConnectionTable& table, std::string client);
        ConnectionTable& table_;
        const std::string client_;
        std::list<Place*>::iterator at_; // in the client's list
        std::function<void()> told_;
        bool leaving_ = false;                 // it has been told, and does not count any more
        std::atomic<std::int64_t> idle_since_; // 0: it has a request
    };

    // Null, and why, when there is no place for it.
    std::unique_ptr<Place> admit(const std::string& client, Refusal& why);
    // The process has no descriptors left: one connection gives way, if any can.
    void shed();

private:
    struct Client {
        std::list<Place*> places;
        std::uint64_t count = 0; // of these, without those that are leaving
    };
    bool make_room();

    const ConnectionLimits limits_;
    std::mutex mutex_; // taken when a connection comes and when it goes
    std::unordered_map<std::string, Client> clients_;
    std::uint64_t count_ = 0;
};

} // namespace kvmserver::http
