// A process that prepares to go on with a machine whose state another daemon is still sending (Control::prepare()).
#pragma once
#include <cstdint>
#include <memory>
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
    tinykvm::UniqueFd state;       // the file that it reads
};

} // namespace kvmserver::daemon
