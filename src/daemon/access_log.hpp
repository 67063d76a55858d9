// The access log: one JSON object per request, one per line.
#pragma once
#include <mutex>
#include <string>

#include "src/daemon/request.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

class AccessLog {
public:
    // `path`: "" for no log, "-" for stdout, else a file to append to. Throws UserError.
    explicit AccessLog(std::string path);
    bool wanted() const { return !path_.empty(); }
    // Thread-safe. `request` is null if no function got the request. A line that cannot be written is lost.
    void write(const AccessRecord& record, const Request* request);
    // Reopens the file, after log rotation. Throws UserError; the old file then stays in use.
    void reopen();

private:
    const std::string path_;
    std::mutex mutex_;
    tinykvm::UniqueFd file_;
};

} // namespace kvmserver::daemon
