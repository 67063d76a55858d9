// A function's reply as a JSON object: nothing in it acts on a browser that shows it.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>

#include "src/admin/request.hpp"
#include "src/daemon/control.hpp"

namespace kvmserver::admin {

inline constexpr const char* kWrappedType = "application/vnd.kvmserver.reply+json";
inline constexpr std::size_t kMaxWrapped = 1u << 20; // bytes of a body; the rest is cut off

// Whether a browser made the request for a page. Its reply would count as one of the admin API's own origin, so a
// function could set cookies there, clear the site's data, or show a page.
bool from_browser(const Request& request);

nlohmann::json wrapped(const daemon::InvokeReply& reply);

} // namespace kvmserver::admin
