// Listening sockets that are handed in: by systemd, or by the daemon that this one takes over from.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// The socket that was handed in, if any: by another daemon (start_successor) or by systemd's LISTEN_FDS protocol
// (sd_listen_fds(3); the first socket). Removes the environment variables. Throws UserError if the socket does not
// listen.
struct Inherited {
    tinykvm::UniqueFd socket;
    std::vector<tinykvm::UniqueFd> tcp; // of TCP functions
    tinykvm::UniqueFd ready;            // to tell the predecessor (a byte, then close) that this daemon serves
};
Inherited inherited_sockets();
void notify_predecessor(tinykvm::UniqueFd ready); // the predecessor may end

struct Successor {
    pid_t pid = -1;          // our child; must be reaped if it failed
    tinykvm::UniqueFd ready; // readable when it serves (a byte) or has failed (end of file)
};
// Starts the binary at this one's path with the same arguments, and gives it the sockets. Throws HostError.
Successor start_successor(int socket, const std::vector<int>& tcp);
// Whether the successor serves; call once `ready` is readable.
bool successor_serves(int ready);

// Notifies systemd (sd_notify(3)) if it started us: "READY=1", "STOPPING=1", "MAINPID=7".
void notify_service_manager(const std::string& state);

} // namespace kvmserver::daemon
