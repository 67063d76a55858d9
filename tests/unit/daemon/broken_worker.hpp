// Processes of functions that do what the test says instead of what they should. A program that is linked
// with this and has a WorkerPool is itself what that starts for a function (/proc/self/exe): then it becomes
// such a process before main(). Also for tests/fuzz: no Catch2 here.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon::test {

enum class Act : std::uint8_t {
    assigned,   // yes when it has been told what it serves
    machine,    // takes what its control socket holds; yes when it is asked for a machine: the next channel
    send,       // the bytes, as a message over the channel
    send_file,  // the same, with a descriptor
    request,    // takes what the channel holds; yes when it is a request, or the socket of one
    reply,      // the bytes, over that socket
    hang_up,    // on that client
    close,      // the channel
    print,      // the bytes, to stdout
    complain,   // the same, to stderr
    flood,      // from now on: the bytes as a message over the channel, as fast as it can
    tell,       // the bytes, as a message over the control socket
    no_control, // closes the control socket
    exit,       // with the first byte as status
    die,        // by the signal that the first byte says
};

// One that runs, as the test sees it.
class Worker {
public:
    explicit Worker(tinykvm::UniqueFd socket) : socket_(std::move(socket)) {}
    // What it answered; false also when it is gone.
    bool act(Act what, std::uint8_t channel = 0, std::span<const std::uint8_t> bytes = {});
    template <class T>
    bool act_with(Act what, std::uint8_t channel, const T& value) {
        return act(what, channel, {reinterpret_cast<const std::uint8_t*>(&value), sizeof value});
    }
    bool gone() const { return gone_; }

private:
    friend class Workers;
    tinykvm::UniqueFd socket_;
    bool gone_ = false, given_ = false;
};

// Make one before the WorkerPool.
class Workers {
public:
    Workers();
    // All that have connected and are not gone.
    std::vector<std::shared_ptr<Worker>>& all();
    // One more that has been told what it serves; waits for it. Null after so long.
    std::shared_ptr<Worker> assigned(int milliseconds);

private:
    tinykvm::UniqueFd listener_;
    std::vector<std::shared_ptr<Worker>> workers_;
};

} // namespace kvmserver::daemon::test
