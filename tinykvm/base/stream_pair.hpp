// Two connected stream sockets.
#pragma once
#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

struct StreamPair {
    UniqueFd ours, theirs;
};

// Unix sockets that do not block and are closed by execve. Neither, with errno set, when no descriptor is left.
StreamPair stream_pair();

} // namespace tinykvm
