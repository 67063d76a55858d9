#pragma once
#include <string>

namespace kvmserver::cli {

// Resolves `path` against `folder` (absolute). The result has no ".", "..", or doubled or trailing slashes. Works on
// the text only: symbolic links are not followed.
std::string absolute_path(const std::string& folder, const std::string& path);

} // namespace kvmserver::cli
