// Requests of clients that look like an after-restore hook. That one comes from the daemon alone, with values that
// others must not set.
#pragma once
#include <string>
#include <string_view>

#include "src/request/problem.hpp"

namespace kvmserver::daemon {

// `path`: with the query. `hook`: the hook's path, "" for none.
bool is_hook_request(std::string_view method, std::string_view path, std::string_view hook);
request::Problem hook_refused(const std::string& hook, const std::string& function);

} // namespace kvmserver::daemon
