// Service: connections of functions to their storage.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cerrno>

#include "src/daemon/service.hpp"
#include "src/http/connection_table.hpp"
#include "src/snapshot/facts.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"

namespace kvmserver::daemon {

namespace {

std::uint16_t port_in(const protocol::StorageAddress& address) {
    const auto* const any = address.get();
    if (any->sa_family == AF_INET && address.bytes >= sizeof(sockaddr_in))
        return ntohs(reinterpret_cast<const sockaddr_in*>(any)->sin_port);
    if (any->sa_family == AF_INET6 && address.bytes >= sizeof(sockaddr_in6))
        return ntohs(reinterpret_cast<const sockaddr_in6*>(any)->sin6_port);
    return 0;
}

std::string ip_in(const protocol::StorageAddress& address) {
    return port_in(address) == 0 ? "" : http::ip_text(address.storage);
}

protocol::StorageAnswer unreached(std::string why) { return {ECONNREFUSED, std::move(why)}; }

} // namespace

protocol::StorageAnswer Service::connect_storage(StorageConnection connection) {
    const std::string& name = connection.storage;
    const auto destination = table_.named(name);
    if (!destination)
        return unreached(fmt::format("there is no function {}", name));
    const auto version = version_by_share(*destination);
    if (!version)
        return unreached(fmt::format("no version of {} is live", name));
    const Given& given = *version->facts().given;
    if (given.moved)
        return unreached(fmt::format("{} has moved to {}", name, given.moved->to));
    if (!given.tcp || given.tcp->by_name)
        return unreached(fmt::format("{} has no protocol = \"tcp\", which a storage must have", name));
    const Digest snapshot = pool_.snapshot_of(*version);
    auto facts = options_.examinations->known(snapshot);
    if (!facts)
        facts = options_.examinations->of_stored(store::StoredSnapshot(store_, snapshot));
    if (!facts)
        return unreached(fmt::format("the snapshot of {} cannot be examined", version->facts().name()));
    const protocol::StorageRequest& request = connection.request;
    const auto listener = listener_at(*facts, request.to.get(), request.to.bytes);
    if (!listener)
        return {ENOENT, ""};
    tcp_.adopt(NearClient{.socket = std::move(connection.request.stream),
                          .from = std::move(connection.from),
                          .version = version,
                          .listener = static_cast<std::uint16_t>(*listener),
                          .ip = ip_in(request.from),
                          .port = port_in(request.from),
                          .place = std::move(connection.place)});
    return {};
}

} // namespace kvmserver::daemon
