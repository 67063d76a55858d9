// Requests of clients that look like a hook. Those come from kvmserver alone: an after-restore hook has values that
// others must not set.
#pragma once
#include <string>
#include <string_view>

#include "src/request/problem.hpp"

namespace kvmserver::daemon {

// `path`: with the query. `hook`: the hook's path, "" for none.
bool is_hook_request(std::string_view method, std::string_view path, std::string_view hook);
// `name`: "after-restore".
request::Problem hook_refused(const std::string& hook, const char* name, const std::string& function);

} // namespace kvmserver::daemon
