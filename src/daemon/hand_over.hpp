// Listening sockets that come from elsewhere: from systemd, or from the daemon that this one takes over from.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// The socket that was handed in, if one was: by another daemon (start_successor) or by the LISTEN_FDS
// protocol of systemd (sd_listen_fds(3); the first one). The variables that say so are removed. Throws
// UserError when it is no listening socket.
struct Inherited {
    tinykvm::UniqueFd socket;
    tinykvm::UniqueFd ready; // to be closed, after a byte, when this daemon serves: the one before then ends
};
Inherited inherited_sockets();
void tell_predecessor(tinykvm::UniqueFd ready); // that it may end

struct Successor {
    pid_t pid = -1;          // our child, to be waited for when it has failed
    tinykvm::UniqueFd ready; // becomes readable when it serves (a byte) or has failed (its end)
};
// Starts this binary (what now lies where it was started from) with the same words, and gives it the socket.
// Throws HostError.
Successor start_successor(int socket);
// Whether it serves; to be asked once `ready` is readable.
bool successor_serves(int ready);

// Tells systemd (sd_notify(3)), if that started us: "READY=1", "STOPPING=1", "MAINPID=7".
void notify_service_manager(const std::string& state);

} // namespace kvmserver::daemon
