#pragma once
#include <string>

namespace kvmserver::cli {

// `path` seen from `folder` (absolute), without ".", "..", doubled or trailing slashes. Text only: links are
// not followed.
std::string absolute_path(const std::string& folder, const std::string& path);

} // namespace kvmserver::cli
