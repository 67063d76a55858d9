#include "src/http/connection_table.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace kvmserver::http {

namespace {

constexpr std::size_t kSubscriberBytes = 8; // of an IPv6 address

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

} // namespace

std::string client_key(const sockaddr_storage& address) {
    const auto bytes = [](const void* from, std::size_t count) {
        return std::string(static_cast<const char*>(from), count);
    };
    if (address.ss_family == AF_INET) {
        sockaddr_in four;
        std::memcpy(&four, &address, sizeof four);
        return bytes(&four.sin_addr, sizeof four.sin_addr);
    }
    if (address.ss_family != AF_INET6)
        return "";
    sockaddr_in6 six;
    std::memcpy(&six, &address, sizeof six);
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
        return bytes(six.sin6_addr.s6_addr + 12, 4);
    return bytes(six.sin6_addr.s6_addr, kSubscriberBytes);
}

std::string ip_text(const sockaddr_storage& address) {
    char text[INET6_ADDRSTRLEN] = "unix";
    if (address.ss_family == AF_INET) {
        sockaddr_in v4;
        std::memcpy(&v4, &address, sizeof v4);
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    } else if (address.ss_family == AF_INET6) {
        sockaddr_in6 v6;
        std::memcpy(&v6, &address, sizeof v6);
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
            inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
        else
            inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    }
    return text;
}

bool is_loopback(const std::string& key) {
    return key.size() == 4 ? key[0] == 127 : key == std::string(kSubscriberBytes, '\0'); // ::1
}

ConnectionTable::Place::Place(ConnectionTable& table, std::string client)
    : table_(table), client_(std::move(client)), idle_since_(now()) {}

ConnectionTable::Place::~Place() {
    const std::lock_guard lock(table_.mutex_);
    const auto client = table_.clients_.find(client_);
    client->second.places.erase(at_);
    if (!leaving_) {
        --client->second.count;
        --table_.count_;
    }
    if (client->second.places.empty())
        table_.clients_.erase(client);
}

void ConnectionTable::Place::on_give_way(std::function<void()> notify) {
    const std::lock_guard lock(table_.mutex_);
    on_give_way_ = std::move(notify);
}

void ConnectionTable::Place::stay() {
    const std::lock_guard lock(table_.mutex_);
    if (!leaving_)
        return;
    leaving_ = false;
    ++table_.clients_.at(client_).count;
    ++table_.count_;
}

void ConnectionTable::Place::idle() { idle_since_.store(now(), std::memory_order_relaxed); }

std::unique_ptr<ConnectionTable::Place> ConnectionTable::admit(const std::string& client, Refusal& why) {
    const std::lock_guard lock(mutex_);
    const auto known = clients_.find(client);
    const bool bounded = !client.empty() && !(limits_.spare_loopback && is_loopback(client));
    if (limits_.per_client != 0 && bounded && known != clients_.end() && known->second.count >= limits_.per_client) {
        why = Refusal::too_many_of_client;
        return nullptr;
    }
    if (limits_.in_all != 0 && count_ >= limits_.in_all && !make_room()) {
        why = Refusal::too_many_connections;
        return nullptr;
    }
    std::unique_ptr<Place> place(new Place(*this, client));
    Client& mine = clients_[client];
    place->at_ = mine.places.insert(mine.places.end(), place.get());
    ++mine.count;
    ++count_;
    return place;
}

void ConnectionTable::shed() {
    const std::lock_guard lock(mutex_);
    if (!clients_.empty())
        make_room();
}

// Closes the connection that has been idle for longest, of the client with the most connections. Returns false if that
// client has no idle connection.
bool ConnectionTable::make_room() {
    const auto most = std::max_element(clients_.begin(), clients_.end(),
                                       [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
    Place* chosen = nullptr;
    std::int64_t since = 0;
    for (Place* const place : most->second.places) {
        const std::int64_t idle = place->idle_since_.load(std::memory_order_relaxed);
        if (idle == 0 || place->leaving_ || !place->on_give_way_ || (chosen && idle >= since))
            continue;
        chosen = place;
        since = idle;
    }
    if (!chosen)
        return false;
    chosen->leaving_ = true;
    --most->second.count;
    --count_;
    chosen->on_give_way_();
    return true;
}

} // namespace kvmserver::http
