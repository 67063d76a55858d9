// Accepts the connections of TCP functions and gives each a clean machine; also those which the HTTP front passes on
// for functions that hold the key of their TLS connections themselves.
//
// One thread does it all: accepts, waits for a client's first byte unless its program speaks first, asks the pool for a
// machine, and moves the bytes. A function's process never gets a client's socket: it could be made to listen or to
// connect elsewhere in the host's network.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "src/daemon/tcp_relay.hpp"
#include "src/daemon/tcp_sockets.hpp"
#include "src/daemon/worker_pool.hpp"
#include "src/http/connection_table.hpp"
#include "src/http/ids.hpp"
#include "src/http/passthrough.hpp"

namespace kvmserver::daemon {

// A connection that is over. It had a function's address, and perhaps a machine.
struct TcpRecord {
    std::shared_ptr<FunctionVersion> version; // null: none was live
    std::shared_ptr<Request> request;         // null: it never asked for a machine
    std::string function, request_id, client_ip;
    std::string address; // that the client connected to; of passed TLS the host that it asked for
    bool passed_tls = false;
    request::Outcome outcome = request::Outcome::ok;
    std::uint64_t bytes_in = 0, bytes_out = 0, queue_us = 0, exec_us = 0, total_us = 0;
};

// A connection of a function's program to its storage.
struct NearClient {
    tinykvm::UniqueFd socket;                 // a local stream
    std::string from;                         // "shop v4": whose program it is
    std::shared_ptr<FunctionVersion> version; // of the storage
    std::uint16_t listener = 0;               // of its program
    std::string ip;                           // of the client, as the storage sees it; "": a Unix socket's
    std::uint16_t port = 0;
    std::shared_ptr<const void> place; // held as long as it is open
};

class TcpFront {
public:
    struct Told {
        std::function<void(const TcpRecord&)> finished;
        std::function<void(http::Refusal)> refused;
    };
    // What is live now, or null.
    struct Lookup {
        // By the host that a TLS client asks for.
        std::function<std::shared_ptr<const Destination>(std::string_view host)> passing;
        std::function<std::shared_ptr<const Destination>(const std::string& function)> named;
        std::function<bool()> away_too_long; // no client gets a machine
    };
    // All references must outlive this object. The functions are called on its thread.
    TcpFront(TcpSockets& sockets, WorkerPool& pool, http::ConnectionTable& places, Lookup lookup, Told told);
    ~TcpFront(); // cuts what is left
    TcpFront(const TcpFront&) = delete;
    TcpFront& operator=(const TcpFront&) = delete;

    void start();
    // Takes connections from the HTTP front. Any thread may call it, also when this object is gone: it then closes
    // them.
    std::function<void(http::PassedClient)> adopter() const;
    // Takes a connection of another function's program. Any thread.
    void adopt(NearClient client) const { inbox_->add({0, std::move(client)}); }
    bool has_near() const { return inbox_->near_count > 0; }
    void look(); // at the sockets, which have changed. Any thread.
    // Accepts no more connections, but those that are in the queue. Clients that have said nothing have two seconds
    // more for it.
    void drain();
    // Waits until no connection is left. Returns false if there are some after `patience`.
    bool wait_drained(std::chrono::milliseconds patience);
    std::uint64_t open_connections() const { return inbox_->open_count; }
    std::uint64_t accepted() const { return accepted_; }

private:
    using Clock = std::chrono::steady_clock;
    using Id = std::uint64_t;
    class Answer;
    struct Connection;
    struct News { // about a connection, from another thread
        Id id = 0;
        std::variant<tinykvm::UniqueFd, request::Problem, http::Refusal, http::PassedClient, NearClient> what;
    };
    // What other threads leave for the loop. Answers hold it too: they may outlive this object.
    struct Inbox {
        void add(News news);
        void wake() const;
        tinykvm::UniqueFd event;
        std::atomic<std::uint64_t> open_count{0}; // connections, with those in `news`
        std::atomic<std::uint64_t> near_count{0}; // those of them that are another function's
        std::mutex mutex;
        std::vector<News> news;
        bool closed = false; // nobody reads the news
    };
    struct Watched {              // what epoll knows of a socket
        std::uint32_t events = 0; // 0: nothing
        bool hung_up = false;
    };
    struct Listener {
        TcpSockets::Open open;
        Id id = 0;
    };

    void run();
    void handle(Id token, std::uint32_t events);
    void take_news();
    void take_sockets();
    void accept(const ListenAddress& address, int most);
    void admit(const ListenAddress& address, tinykvm::UniqueFd socket, const sockaddr_storage& from);
    Connection& add(tinykvm::UniqueFd socket, const sockaddr_storage& from,
                    std::unique_ptr<http::ConnectionTable::Place> place);
    void take(http::PassedClient client);
    void take(NearClient client);
    std::shared_ptr<const Destination> destination_of(const Connection& connection) const;
    bool is_live(const Connection& connection, const std::set<std::pair<std::string, std::uint64_t>>& listening) const;
    void one_less(bool near);
    void submit(Connection& connection);
    void connected(Connection& connection, tinykvm::UniqueFd machine);
    void move(Connection& connection);
    void watch(Connection& connection);
    void watch_one(int fd, Id token, std::uint32_t events, Watched& watched);
    void end(Connection& connection, request::Outcome outcome, bool reset);
    void close_at(Connection& connection, Clock::time_point when);
    int timeout_ms() const;
    void look_at_times();
    void drain_old(const std::map<ListenAddress, TcpSockets::Open>& open);

    TcpSockets& sockets_;
    WorkerPool& pool_;
    http::ConnectionTable& places_;
    const Lookup lookup_;
    const Told told_;
    tinykvm::UniqueFd epoll_;
    const std::shared_ptr<Inbox> inbox_;
    std::atomic<bool> look_{true}, draining_{false}, stop_{false};
    std::atomic<std::uint64_t> accepted_{0};
    std::mutex drained_mutex_;
    std::condition_variable drained_;

    // Of the thread:
    http::Ids ids_;
    Id next_id_ = 1;
    Clock::time_point next_look_ = Clock::time_point::max(); // not later than the first connection is to be closed
    std::map<ListenAddress, Listener> listeners_;
    std::unordered_map<Id, ListenAddress> listener_ids_;
    std::unordered_map<Id, std::unique_ptr<Connection>> connections_;
    std::vector<char> room_;
    bool closed_listeners_ = false;
    std::thread thread_;
};

} // namespace kvmserver::daemon
