// The version of this binary, which version_from_git.cmake finds out when it is built.
#pragma once
#include <string>

namespace kvmserver::cli {

std::string version_number(); // "0.1.0", or "0.1.0-dev" if the commit is not that of the release
std::string version_line();   // "kvmserver 0.1.0 (0123456789ab)\n"; without the commit where it is not known
std::string version_date();   // "2026-11-24", of the commit

} // namespace kvmserver::cli
