// A process that goes on with a machine's saved state sooner than a new one would: another daemon is still sending the
// state (Control::prepare()), or this process has saved it and lingers.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/common/digest.hpp"
#include "src/daemon/function_process.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

struct PreparedMachine {
    std::unique_ptr<store::StoredSnapshot> snapshot; // holds the snapshot in the store meanwhile
    std::unique_ptr<FunctionProcess> process;
    std::uint64_t state_bytes = 0; // the most that it may take
    std::string ceilings, tenant;  // that it was given
    tinykvm::UniqueFd state;       // the file that has it
    // When it ends, if it lingers. It then ends first of all if memory is short.
    std::optional<std::chrono::steady_clock::time_point> until{};
};

} // namespace kvmserver::daemon
