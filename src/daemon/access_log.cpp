#include "src/daemon/access_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/common/time_text.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

AccessLog::AccessLog(std::string path) : path_(std::move(path)) { reopen(); }

void AccessLog::reopen() {
    if (path_.empty() || path_ == "-")
        return;
    tinykvm::UniqueFd file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!file)
        throw tinykvm::UserError(errno == EACCES ? tinykvm::ExitCode::not_permitted : tinykvm::ExitCode::failure,
                                 fmt::format("--access-log {}: {}", path_, std::strerror(errno)));
    const std::lock_guard lock(mutex_);
    file_ = std::move(file);
}

void AccessLog::write(const AccessRecord& record, const Request* request) {
    if (!wanted())
        return;
    nlohmann::ordered_json out{{"ts", time_text_with_ms(record.ms)}, {"request_id", record.request_id}};
    if (!record.traceparent.empty())
        out["traceparent"] = record.traceparent;
    if (request) {
        out["function"] = request->version->facts().function;
        out["version"] = request->version->facts().version;
    }
    out["method"] = record.method;
    out["host"] = record.host;
    out["path"] = record.path;
    out["status"] = record.status;
    out["bytes_in"] = record.bytes_in;
    out["bytes_out"] = record.bytes_out;
    out["client_ip"] = record.client_ip;
    out["cold"] = request && request->cold;
    out["queue_us"] = record.queue_us;
    if (request && request->cold)
        out["restore_us"] = request->restore_us;
    out["exec_us"] = record.exec_us;
    if (request) {
        out["reset_us"] = request->reset_us;
        out["cpu_us"] = request->cpu_us;
        out["dirty_pages"] = request->dirty_pages;
    }
    out["total_us"] = record.total_us;
    out["outcome"] = record.outcome;
    // A single write, so that lines of several threads do not mix.
    const std::string line = out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    const std::lock_guard lock(mutex_);
    (void)!::write(file_ ? file_.get() : STDOUT_FILENO, line.data(), line.size());
}

} // namespace kvmserver::daemon
