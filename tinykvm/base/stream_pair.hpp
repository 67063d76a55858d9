// Two connected stream sockets.
#pragma once
#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

struct StreamPair {
    UniqueFd ours, theirs;
};

// Unix sockets, non-blocking and close-on-exec. On failure both are empty and errno is set.
StreamPair stream_pair();

} // namespace tinykvm
