#include "src/admin/address.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "src/common/unix_address.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::admin {
namespace {

using tinykvm::ExitCode;
using tinykvm::UniqueFd;
using tinykvm::UserError;

constexpr int kBacklog = 128;

UniqueFd open_folder(const std::filesystem::path& path) {
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    return UniqueFd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

UniqueFd unix_socket() {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket)
        tinykvm::throw_errno("socket");
    return socket;
}

bool connect_in(int socket, int folder, const std::string& name) {
    const sockaddr_un address = unix_address(folder, name);
    return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

bool is_loopback(const sockaddr* address) {
    if (address->sa_family == AF_INET)
        return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// Whether this daemon is the successor of its parent.
bool parent_is_this_program() {
    std::error_code error;
    const auto parent = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", ::getppid()), error);
    std::string name = parent.filename().string();
    if (const auto gone = name.find(" (deleted)"); gone != name.npos) // the binary was upgraded
        name.resize(gone);
    return !error && name == std::filesystem::read_symlink("/proc/self/exe", error).filename().string();
}

std::string text_of(const sockaddr_storage& address) {
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return "?";
    return std::strchr(host, ':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

} // namespace

Address parse_address(const std::string& text) {
    Address address;
    if (text.starts_with('/') || text.starts_with("unix:")) {
        address.socket = text.starts_with('/') ? text : text.substr(5);
        if (!address.socket.has_filename())
            throw UserError(ExitCode::usage, fmt::format("'{}' names no socket", text));
        return address;
    }
    const auto colon = text.rfind(':');
    const char* const end = text.data() + text.size();
    const char* const digits = colon == text.npos ? end : text.data() + colon + 1;
    const auto [rest, error] = std::from_chars(digits, end, address.port);
    if (error != std::errc{} || rest != end)
        throw UserError(ExitCode::usage,
                        fmt::format("'{}': write a socket's path, or HOST:PORT as 127.0.0.1:9000", text));
    address.host = text.substr(0, colon);
    if (address.host.starts_with('[') && address.host.ends_with(']'))
        address.host = address.host.substr(1, address.host.size() - 2);
    if (address.host.empty())
        address.host = "127.0.0.1";
    return address;
}

std::filesystem::path default_socket(const std::filesystem::path& store) { return store / "admin.sock"; }

UniqueFd listen_tcp(const Address& address, std::string& actual, bool& loopback) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    const std::string port = std::to_string(address.port);
    if (const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found); error != 0)
        throw UserError(ExitCode::usage, fmt::format("{}: {}", address.host, ::gai_strerror(error)));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
    const std::string shown = fmt::format("{}:{}", address.host, port);
    UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        tinykvm::throw_errno("socket for " + shown);
    const auto bind = [&] { return ::bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0; };
    const auto share = [&] { ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on); };
    // Bind without SO_REUSEPORT first, so that the port is shared with nobody. Only a successor binds with it, beside
    // the daemon that hands over.
    bool bound_here = bind();
    if (!bound_here && errno == EADDRINUSE && parent_is_this_program()) {
        share();
        bound_here = bind();
    }
    if (bound_here)
        share();
    if (!bound_here || ::listen(socket.get(), kBacklog) != 0) {
        if (errno == EADDRINUSE)
            throw UserError(ExitCode::conflict,
                            fmt::format("{}: another process listens there already: choose another port", shown));
        tinykvm::throw_errno("listen on " + shown);
    }
    loopback = is_loopback(found->ai_addr);
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    actual = text_of(bound);
    return socket;
}

UnixListener::UnixListener(std::filesystem::path path) : path_(std::move(path)), name_(path_.filename().string()) {
    folder_ = open_folder(path_);
    if (!folder_)
        tinykvm::throw_errno("open the folder of " + path_.string());
    require_private_folder();
    remove_dead();
    socket_ = unix_socket();
    // Bind under a hidden name until the mode is set, so that nobody else can connect before.
    const std::string hidden = fmt::format(".{}.{}", name_, ::getpid());
    ::unlinkat(folder_.get(), hidden.c_str(), 0);
    const sockaddr_un address = unix_address(folder_.get(), hidden);
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        tinykvm::throw_errno("make the socket " + path_.string());
    struct stat made {};
    if (::fchmodat(folder_.get(), hidden.c_str(), 0600, 0) != 0 || ::listen(socket_.get(), kBacklog) != 0 ||
        ::fstatat(folder_.get(), hidden.c_str(), &made, AT_SYMLINK_NOFOLLOW) != 0 || made.st_uid != ::geteuid() ||
        ::renameat(folder_.get(), hidden.c_str(), folder_.get(), name_.c_str()) != 0) {
        const int error = errno;
        ::unlinkat(folder_.get(), hidden.c_str(), 0);
        errno = error;
        tinykvm::throw_errno("make the socket " + path_.string());
    }
    inode_ = made.st_ino;
}

UnixListener::~UnixListener() {
    struct stat there {};
    if (folder_ && ::fstatat(folder_.get(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        there.st_ino == inode_) // not the socket of a daemon that took over
        ::unlinkat(folder_.get(), name_.c_str(), 0);
}

// In a folder that others may change, they could replace the socket with theirs.
void UnixListener::require_private_folder() const {
    struct stat folder {};
    if (::fstat(folder_.get(), &folder) != 0)
        tinykvm::throw_errno("stat the folder of " + path_.string());
    const bool ours = folder.st_uid == ::geteuid() || folder.st_uid == 0;
    const bool open = (folder.st_mode & 022) != 0 && (folder.st_mode & S_ISVTX) == 0;
    if (!ours || open)
        throw UserError(
            ExitCode::not_permitted,
            fmt::format("{}: others may write to its folder: choose another place, or chmod 700 it", path_.string()));
}

void UnixListener::remove_dead() const {
    struct stat there {};
    if (::fstatat(folder_.get(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (!S_ISSOCK(there.st_mode))
        throw UserError(ExitCode::usage, fmt::format("{}: exists and is not a socket", path_.string()));
    const UniqueFd there_already = unix_socket();
    const bool lives = connect_in(there_already.get(), folder_.get(), name_);
    ucred owner{};
    socklen_t size = sizeof owner;
    // A daemon that hands over to this one listens until this one is ready.
    if (lives && ::getsockopt(there_already.get(), SOL_SOCKET, SO_PEERCRED, &owner, &size) == 0 &&
        owner.pid == ::getppid())
        return; // rename() replaces it
    if (lives)
        throw UserError(ExitCode::conflict, fmt::format("{}: another daemon listens there already", path_.string()));
    ::unlinkat(folder_.get(), name_.c_str(), 0);
}

UniqueFd connect_unix(const std::filesystem::path& path) {
    const UniqueFd folder = open_folder(path);
    UniqueFd socket = unix_socket();
    if (!folder || !connect_in(socket.get(), folder.get(), path.filename().string()))
        socket.reset();
    return socket;
}

} // namespace kvmserver::admin
