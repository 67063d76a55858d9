#include "tinykvm/base/stream_pair.hpp"

#include <sys/socket.h>

namespace tinykvm {

StreamPair stream_pair() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return {};
    return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

} // namespace tinykvm
