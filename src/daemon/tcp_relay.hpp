// Moves the bytes of one connection between its client and its machine.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// Both sockets are non-blocking. Ends of data are passed on separately in each direction.
class TcpRelay {
public:
    explicit TcpRelay(tinykvm::UniqueFd client) : client_(std::move(client)) {}
    void take_machine(tinykvm::UniqueFd machine) { machine_ = std::move(machine); } // before move()

    enum class State {
        open,
        machine_closed, // the program has closed its connection, and the client has all that it sent
        client_gone,    // the client has reset its connection
        both_ended,     // both have closed their sending sides
    };
    // Moves what can be moved now. `room` is for what is on its way.
    State move(std::span<char> room);

    // The epoll events to wait for; 0: only errors.
    std::uint32_t client_events() const;
    std::uint32_t machine_events() const;

    // Closes both. With `reset` the client sees a reset.
    void close(bool reset);
    int client() const { return client_.get(); }
    int machine() const { return machine_.get(); }
    std::uint64_t bytes_in() const { return up_.bytes; }
    std::uint64_t bytes_out() const { return down_.bytes; }

private:
    struct Direction {
        std::string pending;     // read, and not yet taken by the other side
        bool ended = false;      // all has been read
        bool passed_on = false;  // and the other side knows
        std::uint64_t bytes = 0; // read
    };
    enum class Moved { all, source_failed, target_failed };
    static Moved move(int from, int to, Direction& direction, std::span<char> room);
    static bool flush(int to, Direction& direction);

    tinykvm::UniqueFd client_, machine_;
    Direction up_, down_; // to the machine, to the client
};

} // namespace kvmserver::daemon
