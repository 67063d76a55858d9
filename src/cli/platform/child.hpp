// Child processes of commands; the API uses them too.
#pragma once
#include "src/ops/child.hpp"

namespace kvmserver::cli::platform {

using ops::Child;
using ops::kSelf;
using ops::memory_file;
using ops::text_of;

} // namespace kvmserver::cli::platform
