// Names of Unix sockets in the file system.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

// A name that a socket of ours was bound to. It goes with this object, unless it is another's by then. Destroy it
// before the socket.
class UnixName {
public:
    // What becomes of a socket at the name that nobody listens at any more. Anything else that is there stays.
    enum class Dead { stays, replaced };

    UnixName() = default;
    UnixName(UnixName&&) noexcept = default;
    UnixName& operator=(UnixName&& other) noexcept;
    ~UnixName();

    // Binds `socket` to `name` in `folder`, with these permissions. 0 or -errno.
    int bind(int socket, UniqueFd folder, const std::string& name, mode_t mode, Dead dead);
    // The same by the host's path, which is at most 107 bytes; permissions as the process's umask leaves them.
    int bind(int socket, const std::string& path, Dead dead);
    std::optional<mode_t> mode() const; // its permissions now
    void keep() { folder_.reset(); }    // the name stays

private:
    int bind_at(int socket, const std::string& address, UniqueFd folder, const std::string& name, Dead dead);
    void remove();
    UniqueFd folder_;
    std::string name_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

struct BoundSocket { // members in this order: the name goes first
    UniqueFd fd;
    UnixName name; // of a Unix socket at a path
};

} // namespace tinykvm
