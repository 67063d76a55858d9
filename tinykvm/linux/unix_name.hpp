// Names of Unix sockets in the file system.
#pragma once
#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

// Owns the file system name that a socket was bound to. The destructor removes the name, unless it belongs to another
// file by then. Destroy it before the socket.
class UnixName {
public:
    // What bind() does with an existing socket that nobody listens on. Any other file at the name stays.
    enum class Dead { stays, replaced };

    UnixName() = default;
    UnixName(UnixName&&) noexcept = default;
    UnixName& operator=(UnixName&& other) noexcept;
    ~UnixName();

    // Binds `socket` to `name` in `folder` with mode `mode`. 0 or -errno.
    int bind(int socket, UniqueFd folder, const std::string& name, mode_t mode, Dead dead);
    // The same with a host path of at most 107 bytes. The process's umask determines the mode.
    int bind(int socket, const std::string& path, Dead dead);
    std::optional<mode_t> mode() const; // the name's current mode; none if it belongs to another file by now
    void keep() { folder_.reset(); }    // gives up ownership: the name is not removed

private:
    int bind_at(int socket, const std::string& address, UniqueFd folder, const std::string& name, Dead dead);
    bool still_ours(struct stat& there) const; // whether the name belongs to the socket; fills in what is there
    void remove();
    UniqueFd folder_;
    std::string name_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

// A bound socket and its name, if it is a Unix socket at a path. The order of members matters: the name is destroyed
// first.
struct BoundSocket {
    UniqueFd fd;
    UnixName name;
};

} // namespace tinykvm
