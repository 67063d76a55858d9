// Sends the states of a function's machines to the daemon that it is migrated to: most of them while it still serves.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "src/daemon/control.hpp"
#include "src/remote/client.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::admin {

class StateSender {
public:
    struct From {
        std::string function;
        std::uint64_t version = 0;
        unsigned machines = 0; // with states
    };
    // `version_there`: the other daemon's. Both references must outlive this object.
    StateSender(daemon::Control& control, remote::Client& there, From from, std::uint64_t version_there)
        : control_(control), there_(there), from_(std::move(from)), version_there_(version_there) {}

    // While it serves: Control::checkpoint(). What is sent need not be sent again. All throw as that does, and
    // remote::Problem.
    void send_ahead(std::chrono::milliseconds patience);
    // In a hold(): the other daemon has the states then.
    void send_rest();
    std::uint64_t bytes() const { return bytes_; } // that were sent
    // The longest time that requests waited for send_ahead().
    std::chrono::duration<double, std::milli> longest_wait() const { return longest_; }

private:
    struct Sent { // what the other daemon has of a machine's state
        tinykvm::UniqueFd file;
        std::uint64_t bytes = 0;
    };
    enum class Last { no, yes };
    void send(unsigned machine, tinykvm::UniqueFd file, std::uint64_t bytes, Last last);
    void send_suspended(unsigned machine);

    daemon::Control& control_;
    remote::Client& there_;
    const From from_;
    const std::uint64_t version_there_;
    std::map<unsigned, Sent> sent_;
    std::uint64_t bytes_ = 0;
    std::chrono::duration<double, std::milli> longest_{};
};

} // namespace kvmserver::admin
