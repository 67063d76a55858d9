#include "src/daemon/spare_processes.hpp"

#include <exception>

namespace kvmserver::daemon {

std::unique_ptr<FunctionProcess> SpareProcesses::take() {
    failed_ = false;
    while (!ready_.empty()) {
        auto oldest = std::move(ready_.front());
        ready_.erase(ready_.begin());
        if (oldest->running()) // it may have been killed, for example for lack of memory
            return oldest;
    }
    return std::make_unique<FunctionProcess>(0, mode_, groups_);
}

void SpareProcesses::add(std::uint64_t ahead_bytes) {
    try {
        ready_.push_back(std::make_unique<FunctionProcess>(ahead_bytes, mode_, groups_));
    } catch (const std::exception&) { // no descriptors or memory left: keep them for processes that are needed now
        failed_ = true;
    }
}

} // namespace kvmserver::daemon
