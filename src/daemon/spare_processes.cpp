#include "src/daemon/spare_processes.hpp"

#include <exception>

namespace kvmserver::daemon {

std::unique_ptr<FunctionProcess> SpareProcesses::take() {
    for (;;) {
        std::unique_ptr<FunctionProcess> oldest;
        {
            const std::lock_guard lock(mutex_);
            failed_ = false;
            if (ready_.empty())
                break;
            oldest = std::move(ready_.front());
            ready_.erase(ready_.begin());
        }
        if (oldest->running()) // it may have been killed, for example for lack of memory
            return oldest;
    }
    return std::make_unique<FunctionProcess>(0, mode_, groups_, &template_);
}

bool SpareProcesses::complete() const {
    const std::lock_guard lock(mutex_);
    return failed_ || ready_.size() >= count_;
}

void SpareProcesses::add(std::uint64_t ahead_bytes) {
    std::unique_ptr<FunctionProcess> made;
    try {
        made = std::make_unique<FunctionProcess>(ahead_bytes, mode_, groups_, &template_);
    } catch (const std::exception&) { // no descriptors or memory left: keep them for processes that are needed now
    }
    const std::lock_guard lock(mutex_);
    failed_ = !made;
    if (made)
        ready_.push_back(std::move(made));
}

} // namespace kvmserver::daemon
