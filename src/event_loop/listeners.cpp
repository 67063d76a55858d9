#include "src/event_loop/listeners.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/linux/listens_at.hpp"
#include "tinykvm/linux/net_rules.hpp"
#include "tinykvm/linux/permissions.hpp"

namespace kvmserver {

using tinykvm::ExitCode;
using tinykvm::ListenerState;
using tinykvm::UniqueFd;
using tinykvm::UserError;

SocketAddress parse_listen_address(const std::string& text) {
    if (text.starts_with(tinykvm::kUnixRule)) {
        SocketAddress out;
        auto* un = reinterpret_cast<sockaddr_un*>(&out.storage);
        const std::string path = text.substr(std::strlen(tinykvm::kUnixRule));
        if (path.empty() || path.size() >= sizeof(un->sun_path))
            throw UserError(ExitCode::usage, fmt::format("--listen={}: a path of 1 to {} bytes is wanted", text,
                                                         sizeof(un->sun_path) - 1));
        un->sun_family = AF_UNIX;
        std::memcpy(un->sun_path, path.c_str(), path.size() + 1);
        out.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
        return out;
    }
    const tinykvm::NetRule rule = tinykvm::parse_net_rule("--listen", text);
    SocketAddress out;
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    const std::string host = rule.host.empty() ? "0.0.0.0" : rule.host == "localhost" ? "127.0.0.1" : rule.host;
    if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(rule.port);
        out.bytes = sizeof(sockaddr_in);
    } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(rule.port);
        out.bytes = sizeof(sockaddr_in6);
    } else {
        throw UserError(
            ExitCode::usage,
            fmt::format("--listen={}: {} is not an IP address; give a number such as 127.0.0.1:8080", text, host));
    }
    return out;
}

int parse_listen_fd(const std::string& text) {
    int fd = -1;
    const char* begin = text.data() + 3;
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), fd);
    if (error != std::errc() || end != text.data() + text.size() || fd <= 2 || ::fcntl(fd, F_GETFD) < 0)
        throw UserError(ExitCode::usage, fmt::format("--listen={}: no such descriptor was inherited", text));
    return fd;
}

IncomingConnection accept_client(int listening, std::uint32_t listener) {
    IncomingConnection client;
    client.peer.bytes = sizeof(client.peer.storage);
    client.listener = listener;
    client.fd = UniqueFd(::accept4(listening, reinterpret_cast<sockaddr*>(&client.peer.storage), &client.peer.bytes,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK));
    return client;
}

std::string to_string(const sockaddr* address, socklen_t bytes) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET && bytes >= sizeof(sockaddr_in)) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
        return fmt::format("{}:{}", text, ntohs(v4->sin_port));
    }
    if (address->sa_family == AF_INET6 && bytes >= sizeof(sockaddr_in6)) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
        ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
        return fmt::format("[{}]:{}", text, ntohs(v6->sin6_port));
    }
    if (address->sa_family == AF_UNIX && bytes > offsetof(sockaddr_un, sun_path)) {
        const auto* un = reinterpret_cast<const sockaddr_un*>(address);
        const std::size_t room = bytes - offsetof(sockaddr_un, sun_path);
        if (un->sun_path[0] == '\0')
            return "unix:@" + std::string(un->sun_path + 1, room - 1);
        return "unix:" + std::string(un->sun_path, ::strnlen(un->sun_path, room));
    }
    return "an address of family " + std::to_string(address->sa_family);
}

int Listeners::open_socket(ListenerState& socket, Open& out) {
    std::vector<std::uint8_t>& address = socket.address;
    SocketAddress where;
    const bool elsewhere = override_.has_value();
    if (elsewhere) {
        where = *override_;
        override_.reset();
    } else {
        where.bytes = static_cast<socklen_t>(std::min(address.size(), sizeof(where.storage)));
        std::memcpy(&where.storage, address.data(), where.bytes);
        where.storage.ss_family = static_cast<sa_family_t>(socket.family);
    }
    const int type = !elsewhere && (socket.flags & tinykvm::abi::kBindMessages) ? SOCK_SEQPACKET : SOCK_STREAM;
    UniqueFd fd(::socket(where.storage.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        return -errno;
    if (where.storage.ss_family == AF_UNIX) {
        out.fd = std::move(fd);
        const std::string text = to_string(where.get(), where.bytes);
        if (elsewhere) {
            out.path = text;
            return bind_unix(out.fd.get(), where, out.name);
        }
        return text.starts_with("unix:/") ? bind_path(text.substr(std::strlen(tinykvm::kUnixRule)), socket, out)
               : ::bind(out.fd.get(), where.get(), where.bytes) < 0 ? -errno
                                                                    : 0;
    }
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (socket.flags & tinykvm::abi::kBindReusePort)
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    if (where.storage.ss_family == AF_INET6) {
        // As the program asked, or Linux's default: IPv4 too.
        const int only = !elsewhere && (socket.flags & tinykvm::abi::kBindV6Only) ? 1 : 0;
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
    }
    if (::bind(fd.get(), where.get(), where.bytes) < 0)
        return -errno;
    // The program sees the address that it asked for, with the port that the system chose.
    sockaddr_storage real{};
    socklen_t bytes = sizeof(real);
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&real), &bytes) == 0 && real.ss_family == socket.family &&
        (socket.family == AF_INET || socket.family == AF_INET6) && address.size() >= 4)
        std::memcpy(address.data() + 2, reinterpret_cast<const char*>(&real) + 2, 2);
    out.fd = std::move(fd);
    return 0;
}

// A restored program replaces a dead socket file, as a program that starts normally would have done.
int Listeners::bind_path(const std::string& path, const ListenerState& socket, Open& out) const {
    if (!policy_)
        return -EACCES;
    tinykvm::OpenedPlace place = policy_->socket_place(path, {});
    if (place.error != 0)
        return -place.error;
    if (place.visible && place.is_directory)
        return -EADDRINUSE;
    out.path = tinykvm::kUnixRule + path;
    return out.name.bind(out.fd.get(), std::move(place.folder), place.name,
                         static_cast<mode_t>(socket.flags >> tinykvm::abi::kBindModeShift & 0777),
                         replace_dead_ ? tinykvm::UnixName::Dead::replaced : tinykvm::UnixName::Dead::stays);
}

int bind_unix(int socket, const SocketAddress& address, tinykvm::UnixName& name) {
    const std::string text = to_string(address.get(), address.bytes);
    return name.bind(socket, text.substr(std::strlen(tinykvm::kUnixRule)), tinykvm::UnixName::Dead::replaced);
}

void Listeners::note_modes(std::vector<ListenerState>& listeners) const {
    const std::lock_guard lock(mutex_);
    for (ListenerState& state : listeners)
        for (const std::vector<Open>* sockets : {&bound_, &open_})
            for (const Open& open : *sockets)
                if (const auto mode = open.id == state.id ? open.name.mode() : std::nullopt)
                    state.flags = (state.flags & ((1u << tinykvm::abi::kBindModeShift) - 1)) |
                                  std::uint64_t{*mode} << tinykvm::abi::kBindModeShift;
}

void Listeners::override_first(UniqueFd listening) {
    int listens = 0;
    socklen_t bytes = sizeof(listens);
    if (::getsockopt(listening.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) < 0 || listens == 0)
        throw UserError(ExitCode::usage,
                        fmt::format("--listen=fd:{}: this descriptor is not a listening socket", listening.get()));
    ::fcntl(listening.get(), F_SETFD, FD_CLOEXEC);
    ::fcntl(listening.get(), F_SETFL, ::fcntl(listening.get(), F_GETFL) | O_NONBLOCK);
    given_ = std::move(listening);
}

// A correct guest closes a socket before it reuses the number. Otherwise the old socket is closed here.
void Listeners::put(std::vector<Open>& sockets, Open fresh) {
    std::erase_if(sockets, [&](const Open& o) { return o.id == fresh.id; });
    sockets.push_back(std::move(fresh));
}

// Reports what Linux would: the port is taken if another socket of the program listens there (all have SO_REUSEADDR,
// see open_socket()).
bool Listeners::dry_conflict(const ListenerState& socket) const {
    using namespace tinykvm;
    const auto where = [](const ListenerState& s) {
        SocketAddress address;
        address.bytes = static_cast<socklen_t>(std::min(s.address.size(), sizeof(address.storage)));
        std::memcpy(&address.storage, s.address.data(), address.bytes);
        address.storage.ss_family = static_cast<sa_family_t>(s.family);
        return net_address(address.get(), address.bytes);
    };
    const auto v6_only = [](const ListenerState& s) { return (s.flags & abi::kBindV6Only) != 0; };
    const auto here = where(socket);
    return here && here->port != 0 && std::ranges::any_of(dry_listening_, [&](const ListenerState& other) {
               const auto there = where(other);
               return there && other.id != socket.id && !(socket.flags & other.flags & abi::kBindReusePort) &&
                      bound_alike(*here, v6_only(socket), *there, v6_only(other));
           });
}

std::optional<Listeners::DryListener> Listeners::dry_listener_at(const sockaddr* address, socklen_t bytes) const {
    const std::lock_guard lock(mutex_);
    for (const ListenerState& socket : dry_listening_)
        if (!(socket.flags & tinykvm::abi::kBindMessages) &&
            tinykvm::listens_at(socket.address, (socket.flags & tinykvm::abi::kBindV6Only) != 0, address, bytes))
            return DryListener{socket.id, socket.family};
    return std::nullopt;
}

int Listeners::bind(ListenerState& socket) {
    const std::lock_guard lock(mutex_);
    Open fresh;
    fresh.id = socket.id;
    if (dry_) {
        // Bind it for real: the program may set the file's mode. A name in use elsewhere is no error.
        if (socket.family == AF_UNIX) {
            if (policy_ && open_socket(socket, fresh) == 0)
                put(bound_, std::move(fresh));
            return 0;
        }
        if (dry_conflict(socket))
            return -EADDRINUSE;
        if (socket.address.size() < 4 || socket.address[2] != 0 || socket.address[3] != 0)
            return 0;
        return open_socket(socket, fresh); // only to learn a free port
    }
    if (given_)
        return 0; // the inherited socket is bound already, possibly elsewhere
    if (const int error = open_socket(socket, fresh); error < 0)
        return error;
    put(bound_, std::move(fresh));
    return 0;
}

int Listeners::listen(ListenerState& socket, int backlog) {
    const std::lock_guard lock(mutex_);
    if (dry_) {
        if (dry_conflict(socket))
            return -EADDRINUSE;
        std::erase_if(dry_listening_, [&](const ListenerState& s) { return s.id == socket.id; });
        dry_listening_.push_back(socket);
        return 0;
    }
    Open fresh;
    fresh.id = socket.id;
    if (given_) {
        fresh.fd = std::move(given_);
        put(open_, std::move(fresh));
        return 0;
    }
    const auto found = std::find_if(bound_.begin(), bound_.end(), [&](const Open& b) { return b.id == socket.id; });
    if (socket.flags & tinykvm::abi::kBindMessages)
        return found != bound_.end() ? 0 : -EINVAL;
    if (found != bound_.end()) {
        fresh = std::move(*found);
        bound_.erase(found);
    } else if (const int error = open_socket(socket, fresh); error < 0) {
        return error;
    }
    if (::listen(fresh.fd.get(), std::clamp(backlog, 128, 4096)) < 0)
        return -errno;
    put(open_, std::move(fresh));
    return 0;
}

void Listeners::close(std::uint32_t id) {
    const std::lock_guard lock(mutex_);
    for (std::vector<Open>* sockets : {&bound_, &open_})
        std::erase_if(*sockets, [&](const Open& o) { return o.id == id; });
    std::erase_if(dry_listening_, [&](const ListenerState& s) { return s.id == id; });
}

tinykvm::BoundSocket Listeners::take_bound(std::uint32_t id) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(bound_.begin(), bound_.end(), [&](const Open& b) { return b.id == id; });
    if (found == bound_.end())
        return {};
    tinykvm::BoundSocket socket{std::move(found->fd), std::move(found->name)};
    bound_.erase(found);
    return socket;
}

void Listeners::close_all() {
    const std::lock_guard lock(mutex_);
    bound_.clear();
    open_.clear();
    dry_listening_.clear();
}

void Listeners::open(const std::vector<tinykvm::ListenerState>& states) {
    for (const auto& state : states) {
        ListenerState socket = state;
        const std::vector<std::uint8_t>& address = socket.address;
        std::string where;
        {
            const std::lock_guard lock(mutex_);
            where = override_ ? to_string(override_->get(), override_->bytes)
                              : to_string(reinterpret_cast<const sockaddr*>(address.data()),
                                          static_cast<socklen_t>(address.size()));
        }
        replace_dead_ = true;
        const int error = listen(socket, 1024);
        replace_dead_ = false;
        if (error < 0) {
            const bool used = error == -EADDRINUSE;
            throw UserError(used               ? ExitCode::conflict
                            : error == -EACCES ? ExitCode::not_permitted
                                               : ExitCode::failure,
                            fmt::format("cannot listen on {}: {}{}", where, std::strerror(-error),
                                        used ? "; stop the other server or choose another address with --listen" : ""));
        }
    }
}

std::vector<Listeners::Listening> Listeners::all() const {
    const std::lock_guard lock(mutex_);
    std::vector<Listening> out;
    for (const Open& o : open_)
        out.push_back({o.id, o.fd.get()});
    return out;
}

std::vector<std::string> Listeners::addresses() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (const Open& l : open_) {
        sockaddr_storage real{};
        socklen_t bytes = sizeof(real);
        if (!l.path.empty())
            out.push_back(l.path);
        else if (::getsockname(l.fd.get(), reinterpret_cast<sockaddr*>(&real), &bytes) == 0)
            out.push_back(to_string(reinterpret_cast<sockaddr*>(&real), bytes));
    }
    return out;
}

} // namespace kvmserver
