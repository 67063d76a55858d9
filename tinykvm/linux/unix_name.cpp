#include "tinykvm/linux/unix_name.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tinykvm/linux/creation_mask.hpp"

namespace tinykvm {

namespace {

// Whether the name is a socket that refuses connections, because nobody listens on it any more.
bool is_dead(int folder, const std::string& name, const sockaddr_un& address) {
    struct stat there {};
    if (::fstatat(folder, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(there.st_mode))
        return false;
    for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
        const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!probe || ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
            return false;
        if (errno != EPROTOTYPE)
            return errno == ECONNREFUSED;
    }
    return false;
}

} // namespace

UnixName& UnixName::operator=(UnixName&& other) noexcept {
    if (this != &other) {
        remove();
        folder_ = std::move(other.folder_);
        name_ = std::move(other.name_);
        device_ = other.device_;
        inode_ = other.inode_;
    }
    return *this;
}

UnixName::~UnixName() { remove(); }

bool UnixName::still_ours(struct stat& there) const {
    return folder_ && ::fstatat(folder_.get(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           there.st_ino == inode_ && there.st_dev == device_;
}

void UnixName::remove() {
    struct stat there {};
    if (still_ours(there))
        ::unlinkat(folder_.get(), name_.c_str(), 0);
    folder_.reset();
}

int UnixName::bind_at(int socket, const std::string& text, UniqueFd folder, const std::string& name, Dead dead) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (text.size() >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
    const auto try_once = [&] { return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)); };
    int result = try_once();
    if (result != 0 && errno == EADDRINUSE && dead == Dead::replaced && is_dead(folder.get(), name, address)) {
        ::unlinkat(folder.get(), name.c_str(), 0);
        result = try_once();
    } else if (result != 0 && errno != EADDRINUSE) {
        return -errno;
    }
    if (result != 0)
        return -EADDRINUSE;
    struct stat made {};
    if (::fstatat(folder.get(), name.c_str(), &made, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    remove();
    folder_ = std::move(folder);
    name_ = name;
    device_ = made.st_dev;
    inode_ = made.st_ino;
    return 0;
}

int UnixName::bind(int socket, UniqueFd folder, const std::string& name, mode_t mode, Dead dead) {
    // Bind through the folder's descriptor: it cannot be replaced, and the path is short.
    const std::string text = fmt::format("/proc/self/fd/{}/{}", folder.get(), name);
    // Set the mode on the socket before bind(), from which the name takes it. A chmod of the name afterwards could hit
    // another file, or the target of a link.
    if (::fchmod(socket, mode & 0777) != 0)
        return -errno;
    const UnmaskedMode unmasked(mode & 0777);
    return bind_at(socket, text, std::move(folder), name, dead);
}

int UnixName::bind(int socket, const std::string& path, Dead dead) {
    const auto slash = path.rfind('/');
    const std::string parent = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    UniqueFd folder(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder)
        return -errno;
    return bind_at(socket, path, std::move(folder), path.substr(slash == path.npos ? 0 : slash + 1), dead);
}

std::optional<mode_t> UnixName::mode() const {
    struct stat there {};
    if (!still_ours(there))
        return std::nullopt;
    return there.st_mode & 0777;
}

} // namespace tinykvm
