// Counts connections, in total and per client, and selects one to close when there are too many.
//
// When all places are taken, a new connection replaces an idle connection of the client that has the most. So a client
// that takes all places does not keep others out.
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

// Identifies a client: an IPv4 address, the first 64 bits of an IPv6 address (one subscriber), or "" for a Unix socket.
std::string client_key(const sockaddr_storage& address);
// "192.0.2.1", "2001:db8::1", "unix". An IPv4-mapped address is shown as IPv4.
std::string ip_text(const sockaddr_storage& address);
bool is_loopback(const std::string& key);

struct ConnectionLimits {
    std::uint64_t in_all = 0;     // 0: no limit
    std::uint64_t per_client = 0; // 0: no limit; does not apply to Unix sockets
    bool spare_loopback = true;   // exempt clients on this host from per_client: one may be a proxy
};

class ConnectionTable {
public:
    explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}
    ConnectionTable(const ConnectionTable&) = delete;
    ConnectionTable& operator=(const ConnectionTable&) = delete;

    // The place of one connection, from accept to close. The table must outlive it.
    class Place {
    public:
        ~Place();
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        // `notify` is called on any thread, at most once per stay(): the connection should close unless it has a
        // request.
        void on_give_way(std::function<void()> notify);
        void stay(); // it has a request and does not close
        void busy() { idle_since_.store(0, std::memory_order_relaxed); }
        void idle();

    private:
        friend class ConnectionTable;
        Place(ConnectionTable& table, std::string client);
        ConnectionTable& table_;
        const std::string client_;
        std::list<Place*>::iterator at_; // position in the client's list
        std::function<void()> on_give_way_;
        bool leaving_ = false;                 // it was told to close and no longer counts
        std::atomic<std::int64_t> idle_since_; // 0: it has a request
    };

    // Returns null, and sets `why`, if there is no place.
    std::unique_ptr<Place> admit(const std::string& client, Refusal& why);
    // Closes one idle connection, if there is any. For a process that has no descriptors left.
    void shed();

private:
    struct Client {
        std::list<Place*> places;
        std::uint64_t count = 0; // without those that are leaving
    };
    bool make_room();

    const ConnectionLimits limits_;
    std::mutex mutex_; // taken when a connection is opened or closed
    std::unordered_map<std::string, Client> clients_;
    std::uint64_t count_ = 0;
};

} // namespace kvmserver::http
