// How connections come to the TCP front: from its listening sockets, and from the HTTP front.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "src/common/clock.hpp"
#include "src/daemon/tcp_connection.hpp"

namespace kvmserver::daemon {

using request::Outcome;
using tinykvm::UniqueFd;

namespace {

constexpr int kLongestQueue = 4096;         // somaxconn
constexpr std::chrono::seconds kSilent{75}; // for the first byte, as http::Options::idle_timeout
// The same when the daemon drains: a client's first bytes may be on their way, and closing would lose them.
constexpr std::chrono::seconds kSilentDraining{2};
constexpr useconds_t kRestUs = 5'000; // when no descriptor is left

std::uint16_t port_of(const sockaddr_storage& address) {
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                               : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

} // namespace

void TcpFront::take_sockets() {
    const auto open = sockets_.open();
    if (draining_ && open.empty()) {
        // Closing would reset connections that clients take for accepted.
        for (const auto& [id, address] : listener_ids_)
            accept(address, kLongestQueue);
    }
    std::erase_if(listeners_, [&](const auto& listener) {
        const auto now = open.find(listener.first);
        const bool gone = now == open.end() || now->second.socket != listener.second.open.socket;
        if (gone) {
            ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.second.open.socket->get(), nullptr);
            listener_ids_.erase(listener.second.id);
        }
        return gone;
    });
    for (const auto& [address, socket] : open) {
        const auto [at, fresh] = listeners_.try_emplace(address);
        at->second.open = socket;
        if (!fresh)
            continue;
        at->second.id = next_id_++;
        listener_ids_[at->second.id] = address;
        Watched watched;
        watch_one(socket.socket->get(), token_of(at->second.id, false), EPOLLIN, watched);
    }
    if (!draining_)
        return drain_old(open);
    const auto last = Clock::now() + kSilentDraining;
    for (const auto& [id, connection] : connections_)
        if (connection->state == Connection::State::silent && last < connection->until)
            close_at(*connection, last);
    const std::lock_guard lock(drained_mutex_);
    closed_listeners_ = listeners_.empty();
    drained_.notify_all();
}

// Connections of versions that are no longer live have until their drain time is over.
void TcpFront::drain_old(const std::map<ListenAddress, TcpSockets::Open>& open) {
    std::set<std::pair<std::string, std::uint64_t>> live;
    for (const auto& [address, socket] : open)
        for (const Share& share : socket.destination->shares)
            if (share.version)
                live.emplace(share.version->facts().function, share.version->facts().version);
    for (const auto& [id, connection] : connections_) {
        if (connection->state == Connection::State::silent)
            continue; // it gets a live version
        if (is_live(*connection, live))
            connection->until.reset();
        else if (!connection->until)
            close_at(*connection,
                     Clock::now() + std::chrono::nanoseconds(connection->version->facts().given->tcp->drain_ns));
    }
}

// `listening`: the functions and versions that have addresses.
bool TcpFront::is_live(const Connection& connection,
                       const std::set<std::pair<std::string, std::uint64_t>>& listening) const {
    const FunctionVersion::Facts& facts = connection.version->facts();
    if (connection.near.empty() && connection.host.empty())
        return listening.contains({facts.function, facts.version});
    const auto there = destination_of(connection);
    return there && std::ranges::any_of(there->shares, [&](const Share& share) {
               return share.version && share.version->facts().function == facts.function &&
                      share.version->facts().version == facts.version;
           });
}

void TcpFront::accept(const ListenAddress& address, int most) {
    for (int i = 0; i < most; ++i) {
        const auto listener = listeners_.find(address);
        if (listener == listeners_.end())
            return;
        sockaddr_storage from{};
        socklen_t bytes = sizeof from;
        UniqueFd socket(::accept4(listener->second.open.socket->get(), reinterpret_cast<sockaddr*>(&from), &bytes,
                                  SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket) {
            admit(address, std::move(socket), from);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            places_.shed();
            ::usleep(kRestUs); // the clients stay in the backlog meanwhile
        }
        return;
    }
}

TcpFront::Connection& TcpFront::add(UniqueFd socket, const sockaddr_storage& from,
                                    std::unique_ptr<http::ConnectionTable::Place> place) {
    auto made = std::make_unique<Connection>(std::move(socket));
    Connection& connection = *made;
    connection.id = next_id_++;
    connection.request_id = ids_.request_id();
    connection.client_port = port_of(from);
    connection.place = std::move(place);
    connection.accepted_ns = now_ns();
    connections_.emplace(connection.id, std::move(made));
    if (connection.place)
        connection.place->on_give_way([inbox = inbox_, id = connection.id] {
            inbox->add({id, http::Refusal::gave_way});
        });
    return connection;
}

void TcpFront::admit(const ListenAddress& address, UniqueFd socket, const sockaddr_storage& from) {
    ++accepted_;
    http::Refusal why{};
    auto place = places_.admit(http::client_key(from), why);
    if (!place)
        return told_.refused(why); // closes it
    const int on = 1; // a program's small writes are to go out at once, as its own socket would with TCP_NODELAY
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++inbox_->open_count;
    Connection& connection = add(std::move(socket), from, std::move(place));
    connection.address = address;
    connection.client_ip = http::ip_text(from);
    connection.function = listeners_.at(address).open.destination->function;
    connection.version = version_by_share(*listeners_.at(address).open.destination);
    if (!connection.version)
        return end(connection, Outcome::not_live, true);
    if (connection.version->facts().given->tcp->server_first || lookup_.away_too_long())
        return submit(connection);
    close_at(connection, Clock::now() + kSilent);
    watch_one(connection.relay.client(), token_of(connection.id, false), EPOLLIN, connection.client);
}

// Its first bytes are there, unread.
void TcpFront::take(http::PassedClient client) {
    ++accepted_;
    sockaddr_storage from{};
    socklen_t bytes = sizeof from;
    (void)::getpeername(client.socket.get(), reinterpret_cast<sockaddr*>(&from), &bytes);
    sockaddr_storage own{};
    bytes = sizeof own;
    if (::getsockname(client.socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0)
        own = {};
    Connection& connection = add(std::move(client.socket), from, std::move(client.place));
    connection.address.port = port_of(own);
    connection.client_ip = std::move(client.ip);
    connection.host = std::move(client.host);
    const auto destination = destination_of(connection);
    if (destination) {
        connection.function = destination->function;
        connection.version = version_by_share(*destination);
    }
    if (!connection.version || !connection.version->facts().given->tcp) // it has changed just now
        return end(connection, Outcome::not_live, true);
    submit(connection);
}

// It is connected for its program already, so its storage gets it at once, as a listening socket's program would.
void TcpFront::take(NearClient client) {
    ++accepted_;
    Connection& connection = add(std::move(client.socket), {}, nullptr);
    connection.near = std::move(client.from);
    connection.near_place = std::move(client.place);
    connection.listener = client.listener;
    connection.client_ip = std::move(client.ip);
    connection.client_port = client.port;
    connection.function = client.version->facts().function;
    connection.version = std::move(client.version);
    submit(connection);
}

// What is live now where the client connected, or null.
std::shared_ptr<const Destination> TcpFront::destination_of(const Connection& connection) const {
    if (!connection.near.empty())
        return lookup_.named(connection.function);
    if (!connection.host.empty())
        return lookup_.passing(connection.host);
    const auto listener = listeners_.find(connection.address);
    return listener == listeners_.end() ? nullptr : listener->second.open.destination;
}

} // namespace kvmserver::daemon
