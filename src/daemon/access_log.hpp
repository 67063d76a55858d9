// One JSON object a request, a line each.
#pragma once
#include <mutex>
#include <string>

#include "src/daemon/request.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

class AccessLog {
public:
    // "": none, "-": stdout, else a file that is appended to. Throws UserError.
    explicit AccessLog(std::string path);
    bool wanted() const { return !path_.empty(); }
    // Thread-safe. `request` may be null: a request that no function got. A line that cannot be written is lost.
    void write(const AccessRecord& record, const Request* request);
    // Opens the file again, after it was moved away. Throws UserError; then the old one goes on.
    void reopen();

private:
    const std::string path_;
    std::mutex mutex_;
    tinykvm::UniqueFd file_;
};

} // namespace kvmserver::daemon
