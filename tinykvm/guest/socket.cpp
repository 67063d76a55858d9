// The life cycle of sockets: socket, bind, listen, accept, connect, shutdown, close.
#include "tinykvm/guest/local.hpp"

namespace gk {
namespace {

u64 listeners_used[abi::kMaxListeners / 64]; // bit n: listener n

u32 take_listener() {
    for (u32 i = 0; i < abi::kMaxListeners / 64; ++i)
        if (~listeners_used[i]) {
            const u32 n = static_cast<u32>(__builtin_ctzll(~listeners_used[i]));
            listeners_used[i] |= u64{1} << n;
            return i * 64 + n;
        }
    return kNoListener;
}

u64 bind_flags(const Socket* s) {
    const auto on = [&](u32 level, u32 name) {
        const SetOption* o = find_option(s, level, name);
        return o && o->value != 0;
    };
    constexpr u32 kReusePort = 15 /*SO_REUSEPORT*/, kV6Only = 26 /*IPV6_V6ONLY*/;
    const u64 name_mode = s->family == AF_UNIX_ ? u64{0777 & ~creation_mask()} << abi::kBindModeShift : 0;
    return (on(IPPROTO_IPV6_, kV6Only) ? u64{abi::kBindV6Only} : 0) |
           (on(SOL_SOCKET_, kReusePort) ? u64{abi::kBindReusePort} : 0) |
           (s->type == SOCK_SEQPACKET_ ? u64{abi::kBindMessages} : 0) | name_mode;
}

// Completes a Unix address as getsockname() returns it: adds the NUL of a path, or chooses an abstract name if there is
// no name. Returns the new length, 0 if too long.
u32 unix_name(u8* name, u32 bytes) {
    constexpr u32 kMaxBytes = 110; // sizeof(sockaddr_un)
    if (bytes > kMaxBytes)
        return 0;
    if (bytes == 2) {
        static u32 next;
        const u32 number = next++;
        for (u32 i = 0; i < 5; ++i)
            name[3 + i] = static_cast<u8>("0123456789abcdef"[number >> 4 * (4 - i) & 15]);
        return 8;
    }
    u32 end = 2;
    while (name[2] && end < bytes && name[end])
        ++end;
    return name[2] ? end + 1 : bytes;
}

// Closes the host's bound or listening socket and frees the listener number.
void unlisten(Socket* s) {
    host_call(abi::kUnlisten, s->listener);
    free_listener(s);
}

i64 socket_read(File* f, Cursor& c, i64) {
    return receive(static_cast<Socket*>(f), c, 0, 0, nullptr, nullptr, nullptr);
}
i64 socket_write(File* f, Cursor& c, i64) { return send(static_cast<Socket*>(f), c, 0, 0, 0, nullptr); }

u32 socket_poll(File* f) {
    auto* s = static_cast<Socket*>(f);
    switch (s->mode) {
    case Mode::connection: return connection_poll(s);
    case Mode::listening:
        return (s->first_pending || offered_to(s->listener) >= 0 ? POLLIN_ | POLLRDNORM_ : 0u) |
               (s->read_shut ? POLLIN_ | POLLHUP_ | POLLRDHUP_ : 0u);
    case Mode::host: return poll_handle(s->handle, POLLIN_ | POLLOUT_ | POLLRDHUP_);
    case Mode::local: return local_poll(s);
    case Mode::route: return route_poll(s);
    default: return POLLOUT_ | POLLHUP_;
    }
}

void socket_close(File* f) {
    auto* s = static_cast<Socket*>(f);
    if (s->mode == Mode::connection) {
        abi::Conn& c = conn_of(s);
        c.reset = s->linger == 0;
        c.state = abi::kConnClosed;
        deactivate(s);
        note_unsent();
    } else if (s->mode == Mode::listening) {
        deactivate(s);
        while (Socket* pending = take_pending(s))
            unref(pending);
    } else if (s->mode == Mode::local) {
        local_close(s);
    } else if (s->mode == Mode::route) {
        route_close(s);
    } else if (s->mode == Mode::host) {
        host_call(abi::kCloseHandle, static_cast<u64>(s->handle));
    }
    if (s->listener != kNoListener)
        unlisten(s);
    destroy(s);
}

const FileOps socket_ops{socket_read, socket_write, socket_poll, socket_close, "socket"};

i64 put_address(u64 to, u64 length_at, const u8* from, u32 bytes) {
    u32 room;
    if (!get_user(room, length_at))
        return -EFAULT;
    if (static_cast<i32>(room) < 0)
        return -EINVAL;
    if (!copy_to_user(to, from, room < bytes ? room : bytes) || !put_user(length_at, bytes))
        return -EFAULT;
    return 0;
}

} // namespace

Socket* make_socket(u32 family, u32 type, u32 protocol, u32 flags) {
    Socket* s = make<Socket>();
    if (!s)
        return nullptr;
    s->ops = &socket_ops;
    s->kind = Kind::socket;
    s->flags = O_RDWR_ | flags;
    s->family = family;
    s->type = type;
    s->protocol = protocol;
    return s;
}

void free_listener(Socket* s) {
    if (s->listener != kNoListener)
        listeners_used[s->listener / 64] &= ~(u64{1} << s->listener % 64);
    s->listener = kNoListener;
}

Socket* socket_of(u64 fd, i64& error) {
    File* f = file_of(static_cast<i32>(fd));
    if (!f) {
        error = -EBADF;
        return nullptr;
    }
    if (f->kind != Kind::socket) {
        error = -ENOTSOCK;
        return nullptr;
    }
    return static_cast<Socket*>(f);
}

i64 receive(Socket* s, Cursor& c, u32 flags, u64 name, u32* name_bytes, u32* out_flags, Passed** passed) {
    switch (s->mode) {
    case Mode::connection:
        if (name_bytes)
            *name_bytes = 0;
        if (out_flags)
            *out_flags = 0;
        return connection_receive(s, c, flags);
    case Mode::host: return host_message(s, c, flags, false, name, name_bytes, out_flags);
    case Mode::local:
        if (name_bytes)
            *name_bytes = 0;
        return local_receive(s, c, flags, out_flags, passed);
    case Mode::route: return route_receive(s, c, flags, name, name_bytes, out_flags);
    default: return -ENOTCONN;
    }
}

i64 send(Socket* s, Cursor& c, u32 flags, u64 name, u32 name_bytes, Passed* passed) {
    if (s->mode == Mode::local)
        return local_send(s, c, flags, passed);
    if (passed) { // only sockets within the machine can carry files
        drop_passed(passed);
        return -EOPNOTSUPP;
    }
    switch (s->mode) {
    case Mode::connection: return connection_send(s, c, flags);
    case Mode::host: return host_message(s, c, flags, true, name, &name_bytes, nullptr);
    case Mode::route: return route_send(s, c);
    default:
        if (!(flags & MSG_NOSIGNAL_))
            broken_pipe();
        return -EPIPE;
    }
}

i32 handle_of(File* f) {
    if (f->kind == Kind::host)
        return static_cast<HostFile*>(f)->handle;
    if (f->kind == Kind::socket && static_cast<Socket*>(f)->mode == Mode::host)
        return static_cast<Socket*>(f)->handle;
    return -1;
}

i64 bytes_ready(File* f) {
    if (f->kind == Kind::socket && static_cast<Socket*>(f)->mode == Mode::connection) {
        const abi::Conn& c = conn_of(static_cast<Socket*>(f));
        return c.rx_len - c.rx_off;
    }
    if (f->kind == Kind::socket && static_cast<Socket*>(f)->mode == Mode::local)
        return local_bytes_ready(static_cast<Socket*>(f));
    if (f->kind == Kind::pipe)
        return pipe_bytes_ready(f);
    return -1;
}

i64 sys_socket(const Args& c) {
    const u32 family = static_cast<u32>(c.a[0]), type = static_cast<u32>(c.a[1]) & 0xf;
    if (static_cast<u32>(c.a[1]) & ~(0xfu | O_NONBLOCK_ | O_CLOEXEC_))
        return -EINVAL;
    if (family != AF_INET_ && family != AF_INET6_ && family != AF_UNIX_ && family != AF_NETLINK_)
        return -EAFNOSUPPORT;
    if (family == AF_NETLINK_) {
        constexpr u32 kRaw = 3, kRoute = 0;
        if (type != kRaw && type != SOCK_DGRAM_)
            return -94; // ESOCKTNOSUPPORT
        if (c.a[2] != kRoute)
            return -EPROTONOSUPPORT;
        Socket* s = make_socket(family, type, kRoute, static_cast<u32>(c.a[1]) & O_NONBLOCK_);
        if (!s)
            return -ENOMEM;
        s->mode = Mode::route;
        return install_or_release(s, (c.a[1] & O_CLOEXEC_) != 0);
    }
    if (type != SOCK_STREAM_ && type != SOCK_DGRAM_ && !(type == SOCK_SEQPACKET_ && family == AF_UNIX_))
        return type == 3 ? -EPERM : type > 10 ? -EINVAL : -94; // ESOCKTNOSUPPORT
    Socket* s = make_socket(family, type, static_cast<u32>(c.a[2]), static_cast<u32>(c.a[1]) & O_NONBLOCK_);
    if (!s)
        return -ENOMEM;
    if (type == SOCK_DGRAM_)
        if (const i64 error = become_host(s); error < 0) {
            unref(s);
            return error;
        }
    return install_or_release(s, (c.a[1] & O_CLOEXEC_) != 0);
}

i64 sys_bind(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    const u32 bytes = static_cast<u32>(c.a[2]);
    if (s->mode == Mode::host)
        return pass_call(49, static_cast<u64>(s->handle), c.a[1], bytes, creation_mask());
    if ((s->mode != Mode::fresh && s->mode != Mode::route) || bytes < 2 || bytes > kAddressRoom)
        return -EINVAL;
    u8 address_bytes[kAddressRoom] = {};
    if (!copy_from_user(address_bytes, c.a[1], bytes))
        return -EFAULT;
    u16 family;
    memcpy(&family, address_bytes, 2);
    if (family != s->family)
        return s->family == AF_UNIX_ ? -EINVAL : family == 0 && s->family == AF_INET_ ? -EADDRINUSE : -EAFNOSUPPORT;
    if (s->mode == Mode::route)
        return route_bind(s, address_bytes, bytes);
    memcpy(s->local, address_bytes, kAddressRoom);
    s->local_bytes = s->family == AF_UNIX_ ? unix_name(s->local, bytes) : bytes;
    if (s->local_bytes == 0)
        return -EINVAL;
    s->listener = take_listener();
    const i64 result = s->listener == kNoListener ? -ENOBUFS
                                                  : host_call(abi::kBindAddress, s->listener, s->family,
                                                              address(s->local), s->local_bytes, bind_flags(s));
    if (result < 0) {
        s->local_bytes = 0;
        free_listener(s);
        return result;
    }
    s->mode = Mode::bound;
    return 0;
}

// The host applies the backlog to clients. It also limits the program's own connections; a second listen() changes only
// this limit.
i64 sys_listen(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (s->type == SOCK_DGRAM_ || s->mode == Mode::route)
        return -EOPNOTSUPP;
    const u32 backlog = static_cast<u32>(c.a[1]);
    if (s->mode == Mode::listening) {
        s->backlog = backlog;
        return 0;
    }
    if (s->mode == Mode::fresh && s->family == AF_UNIX_)
        return -EINVAL;
    if (s->mode == Mode::fresh) { // not bound: the host chooses the address
        const u16 family = static_cast<u16>(s->family);
        memcpy(s->local, &family, 2);
        s->local_bytes = s->family == AF_INET_ ? 16 : 28;
    } else if (s->mode != Mode::bound) {
        return -EINVAL;
    }
    if (s->mode == Mode::fresh && (s->listener = take_listener()) == kNoListener)
        return -ENOBUFS;
    const i64 result =
        host_call(abi::kListen, s->listener, s->family, address(s->local), s->local_bytes, c.a[1], bind_flags(s));
    if (result < 0) {
        if (s->mode == Mode::fresh)
            free_listener(s);
        return result;
    }
    s->backlog = backlog;
    s->mode = Mode::listening;
    activate(s);
    return 0;
}

namespace {
i64 answer_accept(i32 fd, const Args& c, const u8* peer, u32 bytes) {
    const i64 result = c.a[1] ? put_address(c.a[1], c.a[2], peer, bytes) : 0;
    if (result < 0)
        close_fd(fd);
    return result < 0 ? result : fd;
}
} // namespace

i64 sys_accept4(const Args& c) {
    if (static_cast<u32>(c.a[3]) & ~(O_NONBLOCK_ | O_CLOEXEC_))
        return -EINVAL;
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (s->type == SOCK_DGRAM_ || s->mode == Mode::route)
        return -EOPNOTSUPP;
    if (s->mode != Mode::listening)
        return -EINVAL;
    const u64 deadline = until(s->receive_timeout);
    ref(s);
    i32 slot = -1;
    i64 failed = 0;
    while (failed == 0 && !s->first_pending && (slot = offered_to(s->listener)) < 0) {
        if (s->read_shut) {
            failed = -EINVAL;
        } else if (nonblocking(s)) {
            if (!poll_host_rarely() || (!s->first_pending && offered_to(s->listener) < 0))
                failed = -EAGAIN;
        } else if (const Wake wake = wait_io(deadline); wake != Wake::event) {
            failed = wake == Wake::timeout ? -EAGAIN : s->receive_timeout ? -EINTR : -ERESTARTSYS;
        }
    }
    Socket* own = failed ? nullptr : take_pending(s); // the program's connection to itself
    Socket* fresh = failed ? nullptr : own ? own : make_socket(s->family, s->type, s->protocol, 0);
    if (fresh) {
        fresh->flags |= static_cast<u32>(c.a[3]) & O_NONBLOCK_;
        fresh->urgent_in_line = s->urgent_in_line;
        fresh->pass_credentials = s->pass_credentials;
        fresh->receive_timeout = s->receive_timeout;
        fresh->send_timeout = s->send_timeout;
        fresh->linger = s->linger;
        memcpy(fresh->options, s->options, sizeof(s->options));
        fresh->option_count = s->option_count;
    } else if (!failed) {
        failed = -ENOMEM;
    }
    if (fresh && !own && s->family == AF_UNIX_) { // abi::Conn has no room for a path
        memcpy(fresh->local, s->local, kAddressRoom);
        fresh->local_bytes = s->local_bytes;
    }
    unref(s);
    if (failed)
        return failed;
    const i32 fd = install(fresh, (c.a[3] & O_CLOEXEC_) != 0);
    if (fd < 0) {
        unref(fresh);
        return fd;
    }
    if (own)
        return answer_accept(fd, c, own->end->peer, own->end->peer_bytes);
    abi::Conn& conn = gk_conn_table[slot];
    // If the client disconnected before the host could read its address, return an empty address of the family.
    const u32 usual = fresh->family == AF_INET_ ? 16 : fresh->family == AF_INET6_ ? 28 : 2;
    if (conn.peer_bytes < 2) {
        memset(conn.peer, 0, sizeof(conn.peer));
        conn.peer[0] = static_cast<u8>(fresh->family);
        conn.peer_bytes = usual;
    }
    if (conn.local_bytes < 2) {
        memset(conn.local, 0, sizeof(conn.local));
        conn.local[0] = static_cast<u8>(fresh->family);
        conn.local_bytes = usual;
    }
    conn.state = abi::kConnOpen;
    if (gk_shared_page.offered)
        --gk_shared_page.offered;
    noticed_offers();
    become_connection(fresh, static_cast<u32>(slot));
    return answer_accept(fd, c, conn.peer, conn.peer_bytes);
}
i64 sys_accept(const Args& c) {
    Args d = c;
    d.a[3] = 0;
    return sys_accept4(d);
}

i64 sys_connect(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (s->mode == Mode::local && !s->connected) {
        s->connected = true;
        return 0;
    }
    if (s->mode == Mode::connection || s->mode == Mode::listening || s->mode == Mode::local)
        return -EISCONN;
    if (s->mode == Mode::route)
        return 0; // the kernel is the only possible peer
    const u32 bytes = static_cast<u32>(c.a[2]);
    u8 to[kAddressRoom] = {};
    if (bytes > kAddressRoom)
        return -EINVAL;
    if (!copy_from_user(to, c.a[1], bytes))
        return -EFAULT;
    i64 result;
    ref(s);
    Socket* const own =
        s->type != SOCK_DGRAM_ && bytes >= 2 && !s->connected && !s->connecting ? own_listener(s, to, bytes) : nullptr;
    if (own)
        result = connect_own(s, own, to, bytes);
    else if (result = connect_near(s, to, bytes); result == -ENOENT && (result = become_host(s)) == 0)
        result = host_connect(s, address(to), bytes);
    unref(s);
    return result;
}

i64 sys_getsockname(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (s->mode == Mode::host)
        return pass_call(51, static_cast<u64>(s->handle), c.a[1], c.a[2]);
    if (s->mode == Mode::connection && s->family != AF_UNIX_)
        return put_address(c.a[1], c.a[2], conn_of(s).local, conn_of(s).local_bytes);
    if (s->mode == Mode::route && !s->local_bytes) {
        const u8 unbound[12] = {AF_NETLINK_};
        return put_address(c.a[1], c.a[2], unbound, 12);
    }
    u8 none[28] = {static_cast<u8>(s->family)};
    if (s->local_bytes)
        return put_address(c.a[1], c.a[2], s->local, s->local_bytes);
    return put_address(c.a[1], c.a[2], none, s->family == AF_INET_ ? 16 : s->family == AF_INET6_ ? 28 : 2);
}

i64 sys_getpeername(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (s->mode == Mode::local)
        return put_address(c.a[1], c.a[2], s->end->peer, s->end->peer_bytes);
    if (s->mode == Mode::host)
        return pass_call(52, static_cast<u64>(s->handle), c.a[1], c.a[2]);
    if (s->mode == Mode::connection)
        return put_address(c.a[1], c.a[2], conn_of(s).peer, conn_of(s).peer_bytes);
    return -ENOTCONN;
}

i64 sys_shutdown(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (c.a[1] > 2)
        return -EINVAL;
    if (s->mode == Mode::local)
        return local_shutdown(s, c.a[1]);
    if (s->mode == Mode::host)
        return host_call(48, static_cast<u64>(s->handle), c.a[1]);
    if (s->mode == Mode::listening) {
        if (c.a[1] != 1) {
            s->read_shut = true;
            event_in(s);
        }
        return 0;
    }
    if (s->mode == Mode::route)
        return -EOPNOTSUPP;
    if (s->mode != Mode::connection)
        return -ENOTCONN;
    if (c.a[1] != 1)
        s->read_shut = true;
    if (c.a[1] != 0) {
        conn_of(s).shut_write = 1;
        note_unsent();
    }
    event_in(s);
    event_out(s);
    return 0;
}

} // namespace gk
