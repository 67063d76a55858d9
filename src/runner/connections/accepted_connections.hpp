// Clients of the real listening sockets.
#pragma once
#include <mutex>
#include <vector>

#include "src/event_loop/listeners.hpp"
#include "src/runner/connections/connection_source.hpp"

namespace kvmserver {

// Hands over a client when its first byte has arrived, so that silent connections occupy no machine. For a program that
// speaks first: as soon as the client connects.
class AcceptedConnections final : public ConnectionSource {
public:
    enum class Given { at_first_byte, at_once };
    // `served`: the program's datagram sockets, which must outlive this object.
    AcceptedConnections(const Listeners& listeners, std::vector<tinykvm::HandleBase::Served> served,
                        Given given = Given::at_first_byte);
    bool next(IncomingConnection& out) override;

private:
    void add(int fd, std::uint32_t events, std::uint64_t token);
    bool receive(const tinykvm::HandleBase::Served& from, IncomingConnection& out);
    bool accept(const Listeners::Listening& from, IncomingConnection& out);
    bool take(std::uint64_t slot, IncomingConnection& out);

    tinykvm::UniqueFd epoll_;
    std::vector<Listeners::Listening> listening_;
    std::vector<tinykvm::HandleBase::Served> served_;
    Given given_;
    std::mutex mutex_;
    std::vector<IncomingConnection> silent_;
};

} // namespace kvmserver
