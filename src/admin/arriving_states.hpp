// States of machines that come from another daemon in pieces, between two requests.
#pragma once
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "src/daemon/prepared_machine.hpp"
#include "src/store/snapshots/saved_state.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::admin {

struct ArrivingState {
    store::SavedState state;
    tinykvm::UniqueFd file;                            // that it has begun
    std::uint64_t bytes = 0;                           // so far
    std::unique_ptr<daemon::PreparedMachine> prepared; // null: none
};

// Thread-safe.
class ArrivingStates {
public:
    struct Of {
        std::string function;
        std::uint64_t version = 0;
        unsigned machine = 1;
        auto operator<=>(const Of&) const = default;
    };
    // What is kept belongs to the caller then.
    std::optional<ArrivingState> take(const Of& of);
    // Forgets those that nobody has added to for long: whoever sent them has gone.
    void keep(const Of& of, ArrivingState state);

private:
    struct Entry {
        ArrivingState state;
        std::chrono::steady_clock::time_point until;
    };
    std::mutex mutex_;
    std::map<Of, Entry> entries_;
};

} // namespace kvmserver::admin
