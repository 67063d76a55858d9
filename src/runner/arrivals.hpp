// Where request machines get their clients from.
#pragma once
#include <mutex>
#include <vector>

#include "src/runner/listeners.hpp"

namespace kvmserver {

// What a client cost.
struct Served {
    std::uint64_t exec_ns = 0, reset_ns = 0;
    std::uint64_t pages_copied = 0, pages_dropped = 0, exits = 0;
};

// Thread-safe where several machines share one.
class ArrivalSource {
public:
    virtual ~ArrivalSource() = default;
    // Called when the machine is clean. Blocks until a client has something to say; false when the server is to stop.
    virtual bool next(Arrival& out) = 0;
    // Called when the machine is clean again, on its thread.
    virtual void served(const Served&) {}
};

// Clients of the real listening sockets. A machine is given to a client once its first byte is here, so silent
// connections hold none; or, for a program that speaks first, as the client connects.
class Arrivals final : public ArrivalSource {
public:
    enum class Given { at_first_byte, at_once };
    // `served`: the program's datagram sockets, which outlive this.
    Arrivals(const Listeners& listeners, std::vector<tinykvm::HandleBase::Served> served,
             Given given = Given::at_first_byte);
    bool next(Arrival& out) override;

private:
    void add(int fd, std::uint32_t events, std::uint64_t token);
    bool receive(const tinykvm::HandleBase::Served& from, Arrival& out);
    bool accept(const Listeners::Listening& from, Arrival& out);
    bool take(std::uint64_t slot, Arrival& out);

    tinykvm::UniqueFd epoll_;
    std::vector<Listeners::Listening> listening_;
    std::vector<tinykvm::HandleBase::Served> served_;
    Given given_;
    std::mutex mutex_;
    std::vector<Arrival> silent_;
};

} // namespace kvmserver
