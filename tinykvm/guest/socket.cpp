// The life of sockets: made, bound, listening, accepted, connected, shut down, closed.
#include "tinykvm/guest/socket.hpp"

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
    return (on(IPPROTO_IPV6_, kV6Only) ? u64{abi::kBindV6Only} : 0) | (on(SOL_SOCKET_, kReusePort) ? u64{abi::kBindReusePort} : 0);
}

// Nothing of it is on the host any more, unless a handle.
void unlisten(Socket* s) {
    host_call(abi::kUnlisten, s->listener);
    free_listener(s);
}


i64 socket_read(File* f, Cursor& c, i64) { return receive(static_cast<Socket*>(f), c, 0, 0, nullptr, nullptr); }
i64 socket_write(File* f, Cursor& c, i64) { return send(static_cast<Socket*>(f), c, 0, 0, 0); }

u32 socket_poll(File* f) {
    auto* s = static_cast<Socket*>(f);
    switch (s->mode) {
    case Mode::connection: return connection_poll(s);
    case Mode::listening:
        return (offered_to(s->listener) >= 0 ? POLLIN_ | POLLRDNORM_ : 0u) | (s->read_shut ? POLLIN_ | POLLHUP_ | POLLRDHUP_ : 0u);
    case Mode::host: return poll_handle(s->handle, POLLIN_ | POLLOUT_ | POLLRDHUP_);
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
        unlisten(s);
    } else if (s->mode == Mode::bound) {
        unlisten(s);
    } else if (s->mode == Mode::host) {
        host_call(abi::kCloseHandle, static_cast<u64>(s->handle));
    }
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

} // namespace

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

bool is_pair(u64 fd) {
    File* f = file_of(static_cast<i32>(fd));
    return f && f->kind == Kind::pair;
}

i64 receive(Socket* s, Cursor& c, u32 flags, u64 name, u32* name_bytes, u32* out_flags) {
    switch (s->mode) {
    case Mode::connection:
        if (name_bytes)
            *name_bytes = 0;
        if (out_flags)
            *out_flags = 0;
        return connection_receive(s, c, flags);
    case Mode::host: return host_message(s, c, flags, false, name, name_bytes, out_flags);
    default: return -ENOTCONN;
    }
}

i64 send(Socket* s, Cursor& c, u32 flags, u64 name, u32 name_bytes) {
    switch (s->mode) {
    case Mode::connection: return connection_send(s, c, flags);
    case Mode::host: return host_message(s, c, flags, true, name, &name_bytes, nullptr);
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
    if (f->kind == Kind::pipe)
        return pipe_bytes_ready(f);
    if (f->kind == Kind::pair)
        return pair_bytes_ready(f);
    return -1;
}

i64 sys_socket(const Args& c) {
    const u32 family = static_cast<u32>(c.a[0]), type = static_cast<u32>(c.a[1]) & 0xf;
    if (static_cast<u32>(c.a[1]) & ~(0xfu | O_NONBLOCK_ | O_CLOEXEC_))
        return -EINVAL;
    if (family != AF_INET_ && family != AF_INET6_ && family != AF_UNIX_)
        return -EAFNOSUPPORT;
    if (type != SOCK_STREAM_ && type != SOCK_DGRAM_)
        return type == 3 ? -EPERM : -EPROTONOSUPPORT;
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
        return pass_call(49, static_cast<u64>(s->handle), c.a[1], bytes);
    if (s->mode != Mode::fresh || bytes < 2 || bytes > kAddressRoom)
        return -EINVAL;
    u8 address_bytes[kAddressRoom] = {};
    if (!copy_from_user(address_bytes, c.a[1], bytes))
        return -EFAULT;
    u16 family;
    memcpy(&family, address_bytes, 2);
    if (family != s->family)
        return family == 0 && s->family == AF_INET_ ? -EADDRINUSE : -EAFNOSUPPORT;
    memcpy(s->local, address_bytes, kAddressRoom);
    s->local_bytes = bytes;
    s->listener = take_listener();
    const i64 result = s->listener == kNoListener
                           ? -ENOBUFS
                           : host_call(abi::kBindAddress, s->listener, s->family, address(s->local), bytes, bind_flags(s));
    if (result < 0) {
        s->local_bytes = 0;
        free_listener(s);
        return result;
    }
    s->mode = Mode::bound;
    return 0;
}

// The backlog is the host's affair.
i64 sys_listen(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return is_pair(c.a[0]) ? -EOPNOTSUPP : error;
    if (s->mode == Mode::listening)
        return 0;
    if (s->type != SOCK_STREAM_)
        return -EOPNOTSUPP;
    if (s->mode == Mode::fresh) { // an address of the system's choice
        const u16 family = static_cast<u16>(s->family);
        memcpy(s->local, &family, 2);
        s->local_bytes = s->family == AF_INET_ ? 16 : 28;
    } else if (s->mode != Mode::bound) {
        return -EINVAL;
    }
    if (s->mode == Mode::fresh && (s->listener = take_listener()) == kNoListener)
        return -ENOBUFS;
    const i64 result = host_call(abi::kListen, s->listener, s->family, address(s->local), s->local_bytes, c.a[1], bind_flags(s));
    if (result < 0) {
        if (s->mode == Mode::fresh)
            free_listener(s);
        return result;
    }
    s->mode = Mode::listening;
    activate(s);
    return 0;
}

i64 sys_accept4(const Args& c) {
    if (static_cast<u32>(c.a[3]) & ~(O_NONBLOCK_ | O_CLOEXEC_))
        return -EINVAL;
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return is_pair(c.a[0]) ? -EINVAL : error;
    if (s->type != SOCK_STREAM_)
        return -EOPNOTSUPP;
    if (s->mode != Mode::listening)
        return -EINVAL;
    const u64 deadline = until(s->receive_timeout);
    ref(s);
    i32 slot = -1;
    i64 failed = 0;
    while (failed == 0 && (slot = offered_to(s->listener)) < 0) {
        if (s->read_shut) {
            failed = -EINVAL;
        } else if (nonblocking(s)) {
            if (!poll_host_rarely() || offered_to(s->listener) < 0)
                failed = -EAGAIN;
        } else if (const Wake wake = wait_io(deadline); wake != Wake::event) {
            failed = wake == Wake::timeout ? -EAGAIN : s->receive_timeout ? -EINTR : -ERESTARTSYS;
        }
    }
    Socket* fresh = failed ? nullptr : make_socket(s->family, s->type, s->protocol, static_cast<u32>(c.a[3]) & O_NONBLOCK_);
    if (fresh) {
        fresh->receive_timeout = s->receive_timeout;
        fresh->send_timeout = s->send_timeout;
        fresh->linger = s->linger;
        memcpy(fresh->options, s->options, sizeof(s->options));
        fresh->option_count = s->option_count;
    } else if (!failed) {
        failed = -ENOMEM;
    }
    unref(s);
    if (failed)
        return failed;
    const i32 fd = install(fresh, (c.a[3] & O_CLOEXEC_) != 0);
    if (fd < 0) {
        unref(fresh);
        return fd;
    }
    abi::Conn& conn = gk_conn_table[slot];
    // A client that was gone before the host could ask who it is has an address all the same.
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
    fresh->mode = Mode::connection;
    fresh->slot = static_cast<u32>(slot);
    fresh->seen_rx = conn.rx_len;
    fresh->seen_flags = conn.rx_eof;
    activate(fresh);
    if (c.a[1])
        if (const i64 result = put_address(c.a[1], c.a[2], conn.peer, conn.peer_bytes); result < 0) {
            close_fd(fd);
            return result;
        }
    return fd;
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
    if (s->mode == Mode::connection)
        return -EISCONN;
    if (s->mode == Mode::listening)
        return -EISCONN;
    if (const i64 failed = become_host(s); failed < 0)
        return failed;
    ref(s);
    const i64 result = host_connect(s, c.a[1], c.a[2]);
    unref(s);
    return result;
}

i64 sys_getsockname(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s) {
        if (!is_pair(c.a[0]))
            return error;
        const u8 unnamed[2] = {AF_UNIX_, 0};
        return put_address(c.a[1], c.a[2], unnamed, 2);
    }
    if (s->mode == Mode::host)
        return pass_call(51, static_cast<u64>(s->handle), c.a[1], c.a[2]);
    if (s->mode == Mode::connection)
        return put_address(c.a[1], c.a[2], conn_of(s).local, conn_of(s).local_bytes);
    u8 none[28] = {static_cast<u8>(s->family)};
    if (s->local_bytes)
        return put_address(c.a[1], c.a[2], s->local, s->local_bytes);
    return put_address(c.a[1], c.a[2], none, s->family == AF_INET_ ? 16 : s->family == AF_INET6_ ? 28 : 2);
}

i64 sys_getpeername(const Args& c) {
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s) {
        if (!is_pair(c.a[0]))
            return error;
        const u8 unnamed[2] = {AF_UNIX_, 0};
        return put_address(c.a[1], c.a[2], unnamed, 2);
    }
    if (s->mode == Mode::host)
        return pass_call(52, static_cast<u64>(s->handle), c.a[1], c.a[2]);
    if (s->mode == Mode::connection)
        return put_address(c.a[1], c.a[2], conn_of(s).peer, conn_of(s).peer_bytes);
    return -ENOTCONN;
}

i64 sys_shutdown(const Args& c) {
    i64 error = 0;
    if (is_pair(c.a[0]))
        return pair_shutdown(file_of(static_cast<i32>(c.a[0])), c.a[1]);
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (c.a[1] > 2)
        return -EINVAL;
    if (s->mode == Mode::host)
        return host_call(48, static_cast<u64>(s->handle), c.a[1]);
    if (s->mode == Mode::listening) {
        if (c.a[1] != 1) {
            s->read_shut = true;
            event_in(s);
        }
        return 0;
    }
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
