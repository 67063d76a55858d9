// One connection of the TCP front. Of the front's own files.
#pragma once
#include "src/daemon/tcp_front.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// The tokens of a connection's two sockets; a listener has the first one only.
inline std::uint64_t token_of(std::uint64_t id, bool machine) { return id * 2 + machine; }

struct TcpFront::Connection {
    explicit Connection(tinykvm::UniqueFd socket) : relay(std::move(socket)) {}
    Id id = 0;
    ListenAddress address;                  // where the client connected
    std::string host;                       // of TLS that is passed through; else ""
    std::string near;                       // whose program the client is, if it is another function's; else ""
    std::uint16_t listener = 0;             // then: of the storage's program
    std::shared_ptr<const void> near_place; // then
    TcpRelay relay;
    std::shared_ptr<FunctionVersion> version;
    std::string function, request_id, client_ip;
    std::uint16_t client_port = 0;
    std::unique_ptr<http::ConnectionTable::Place> place;
    enum class State { silent, queued, relayed } state = State::silent;
    std::shared_ptr<Answer> answer; // while queued
    std::unique_ptr<RequestLease> lease;
    std::uint64_t accepted_ns = 0, asked_ns = 0, connected_ns = 0;
    std::optional<Clock::time_point> until; // then it is closed
    Watched client, machine;
};

} // namespace kvmserver::daemon
