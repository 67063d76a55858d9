// Sockets: the listener and its connections, which live in buffers shared with the host, and outbound sockets,
// which live on the host behind a handle. A socket becomes one or the other by what the program does with it.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

enum : u32 { AF_UNIX_ = 1, AF_INET_ = 2, AF_INET6_ = 10 };
enum : u32 { SOCK_STREAM_ = 1, SOCK_DGRAM_ = 2 };
enum : u32 { MSG_PEEK_ = 2, MSG_TRUNC_ = 0x20, MSG_DONTWAIT_ = 0x40, MSG_WAITALL_ = 0x100, MSG_NOSIGNAL_ = 0x4000 };
constexpr u64 kAddressRoom = 128; // sockaddr_storage

enum class Mode : u8 { fresh, bound, listening, connection, host };

struct Socket : File {
    Mode mode = Mode::fresh;
    u32 family = 0, type = 0, protocol = 0;
    i32 handle = -1;
    u32 listener = 0;
    u32 slot = 0;             // of a connection
    bool read_shut = false;
    bool reset_on_close = false;
    bool connecting = false;
    i32 error = 0;
    u64 receive_timeout = 0, send_timeout = 0; // ns, 0: none
    u32 local_bytes = 0;
    u8 local[kAddressRoom] = {};
    Socket* next = nullptr;   // listening sockets and connections, for conns_updated()
    Socket* previous = nullptr;
    u32 seen_rx = 0, seen_flags = 0;
};

Socket* active;            // listening ones and connections
u32 listeners_used;        // bit n: listener n
u32 seen_offered;

abi::Conn& conn_of(const Socket* s) { return gk_conn_table[s->slot]; }
u8* rx_buffer(u32 slot) { return gk_conn_buffers + static_cast<u64>(slot) * (abi::kRxBytes + abi::kTxBytes); }
u8* tx_buffer(u32 slot) { return rx_buffer(slot) + abi::kRxBytes; }

void activate(Socket* s) {
    s->previous = nullptr;
    s->next = active;
    if (active)
        active->previous = s;
    active = s;
}
void deactivate(Socket* s) {
    (s->previous ? s->previous->next : active) = s->next;
    if (s->next)
        s->next->previous = s->previous;
}

u32 tx_room(const abi::Conn& c) { return abi::kTxBytes - c.tx_len; }

u64 until(u64 timeout) { return timeout ? now_mono() + timeout : kNever; }

// --- connections ---------------------------------------------------------------------------------------------------------

i64 connection_receive(Socket* s, Cursor& to, u32 flags) {
    abi::Conn& c = conn_of(s);
    const bool wait = !nonblocking(s) && !(flags & MSG_DONTWAIT_);
    if (to.left == 0)
        return 0;
    u64 done = 0;
    const u64 deadline = until(s->receive_timeout);
    for (;;) {
        while (c.rx_off < c.rx_len && to.left > 0) {
            const u64 n = c.rx_len - c.rx_off;
            const i64 moved = to.put(rx_buffer(s->slot) + c.rx_off, n < to.left ? n : to.left);
            if (moved < 0)
                return done ? static_cast<i64>(done) : moved;
            done += static_cast<u64>(moved);
            if (flags & MSG_PEEK_)
                return static_cast<i64>(done);
            c.rx_off += static_cast<u32>(moved);
            if (c.rx_off == c.rx_len)
                c.rx_off = c.rx_len = s->seen_rx = 0;
        }
        if (to.left == 0 || (done && !(flags & MSG_WAITALL_)))
            return static_cast<i64>(done);
        if (c.error && !done) {
            const i64 error = c.error;
            c.error = 0;
            return -error;
        }
        if (c.rx_eof || s->read_shut || c.error)
            return static_cast<i64>(done);
        if (!wait)
            return done ? static_cast<i64>(done) : -EAGAIN;
        c.want_rx = 1;
        const Wake wake = wait_io(deadline);
        if (wake == Wake::signal)
            return done ? static_cast<i64>(done) : s->receive_timeout ? -EINTR : -ERESTARTSYS;
        if (wake == Wake::timeout)
            return done ? static_cast<i64>(done) : -EAGAIN;
    }
}

i64 connection_send(Socket* s, Cursor& from, u32 flags) {
    abi::Conn& c = conn_of(s);
    const bool wait = !nonblocking(s) && !(flags & MSG_DONTWAIT_);
    u64 done = 0;
    const u64 deadline = until(s->send_timeout);
    while (from.left > 0) {
        if (c.error || c.shut_write) {
            if (done)
                break;
            const i64 error = c.shut_write ? i64{EPIPE} : i64{c.error};
            if (!c.shut_write)
                c.error = EPIPE;
            if (!(flags & MSG_NOSIGNAL_) && error == EPIPE)
                send_signal(current, SIGPIPE_, {SIGPIPE_, 0, 0, 0, 0, 0});
            return -error;
        }
        if (tx_room(c) == 0) {
            host_call(abi::kConnFlush, s->slot);
            if (tx_room(c) > 0 || c.error)
                continue;
            if (!wait)
                return done ? static_cast<i64>(done) : -EAGAIN;
            c.want_tx = 1;
            const Wake wake = wait_io(deadline);
            if (wake == Wake::signal)
                return done ? static_cast<i64>(done) : s->send_timeout ? -EINTR : -ERESTARTSYS;
            if (wake == Wake::timeout)
                return done ? static_cast<i64>(done) : -EAGAIN;
            continue;
        }
        const u64 n = tx_room(c);
        const i64 moved = from.get(tx_buffer(s->slot) + c.tx_len, n < from.left ? n : from.left);
        if (moved < 0)
            return done ? static_cast<i64>(done) : moved;
        c.tx_len += static_cast<u32>(moved);
        done += static_cast<u64>(moved);
    }
    return static_cast<i64>(done);
}

u32 connection_poll(Socket* s) {
    const abi::Conn& c = conn_of(s);
    u32 events = 0;
    if (c.rx_off < c.rx_len || c.rx_eof || s->read_shut || c.error)
        events |= POLLIN_ | POLLRDNORM_;
    if (c.rx_eof || s->read_shut)
        events |= POLLRDHUP_;
    if (c.error)
        events |= POLLERR_ | POLLHUP_ | POLLRDHUP_;
    if ((c.rx_eof || s->read_shut) && c.shut_write)
        events |= POLLHUP_;
    // Like Linux, a third free counts as writable. A full buffer may be on its way: the host knows.
    if (tx_room(c) < abi::kTxBytes / 3 && !c.error)
        host_call(abi::kConnFlush, s->slot);
    if (tx_room(c) >= abi::kTxBytes / 3 || c.error || c.shut_write)
        events |= POLLOUT_ | POLLWRNORM_;
    return events;
}

// --- the host's sockets ------------------------------------------------------------------------------------------------------

i64 host_message(Socket* s, Cursor& c, u32 flags, bool send, u64 name, u32* name_bytes, u32* out_flags) {
    const bool wait = !nonblocking(s) && !(flags & MSG_DONTWAIT_);
    const u64 deadline = until(send ? s->send_timeout : s->receive_timeout);
    for (;;) {
        abi::SocketMessage m{};
        m.iov = address(c.vec);
        m.iov_count = c.count;
        m.name = name;
        m.name_bytes = name_bytes ? *name_bytes : 0;
        m.flags = (flags | MSG_DONTWAIT_) & ~u32{MSG_WAITALL_};
        const i64 n = host_call(send ? 46 : 47, static_cast<u64>(s->handle), address(&m));
        if (n != -EAGAIN) {
            if (name_bytes)
                *name_bytes = m.name_bytes;
            if (out_flags)
                *out_flags = m.flags;
            if (n == -EPIPE && !(flags & MSG_NOSIGNAL_))
                send_signal(current, SIGPIPE_, {SIGPIPE_, 0, 0, 0, 0, 0});
            return n;
        }
        if (!wait)
            return n;
        add_interest(s->handle, send ? POLLOUT_ : POLLIN_);
        const Wake wake = wait_io(deadline);
        if (wake == Wake::signal)
            return -ERESTARTSYS;
        if (wake == Wake::timeout)
            return -EAGAIN;
    }
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
            send_signal(current, SIGPIPE_, {SIGPIPE_, 0, 0, 0, 0, 0});
        return -EPIPE;
    }
}

i64 socket_read(File* f, Cursor& c, i64) { return receive(static_cast<Socket*>(f), c, 0, 0, nullptr, nullptr); }
i64 socket_write(File* f, Cursor& c, i64) { return send(static_cast<Socket*>(f), c, 0, 0, 0); }

u32 socket_poll(File* f) {
    auto* s = static_cast<Socket*>(f);
    switch (s->mode) {
    case Mode::connection: return connection_poll(s);
    case Mode::listening: return offered_to(s->listener) >= 0 ? POLLIN_ | POLLRDNORM_ : 0;
    case Mode::host: return poll_handle(s->handle, POLLIN_ | POLLOUT_ | POLLRDHUP_);
    default: return POLLOUT_ | POLLHUP_;
    }
}

void socket_close(File* f) {
    auto* s = static_cast<Socket*>(f);
    if (s->mode == Mode::connection) {
        abi::Conn& c = conn_of(s);
        c.reset = s->reset_on_close;
        c.state = abi::kConnClosed;
        deactivate(s);
    } else if (s->mode == Mode::listening) {
        deactivate(s);
        listeners_used &= ~(u32{1} << s->listener);
        host_call(abi::kUnlisten, s->listener);
    } else if (s->mode == Mode::host) {
        host_call(abi::kCloseHandle, static_cast<u64>(s->handle));
    }
    destroy(s);
}

const FileOps socket_ops{socket_read, socket_write, socket_poll, socket_close, "socket"};

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

i64 become_host(Socket* s) {
    if (s->mode == Mode::host)
        return 0;
    const i64 handle = host_call(41, s->family, s->type, s->protocol);
    if (handle < 0)
        return handle;
    s->handle = static_cast<i32>(handle);
    s->mode = Mode::host;
    return 0;
}

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

i32 offered_to(u32 listener) {
    if (gk_shared_page.offered == 0)
        return -1;
    for (u32 i = 0; i < gk_shared_page.conn_limit && i < abi::kMaxConns; ++i)
        if (gk_conn_table[i].state == abi::kConnOffered && gk_conn_table[i].listener == listener)
            return static_cast<i32>(i);
    return -1;
}

void conns_updated() {
    for (Socket* s = active; s; s = s->next) {
        if (s->mode == Mode::listening) {
            if (gk_shared_page.offered != seen_offered && offered_to(s->listener) >= 0)
                event_in(s);
            continue;
        }
        abi::Conn& c = conn_of(s);
        const u32 flags = c.rx_eof | static_cast<u32>(c.error != 0) << 1;
        const u32 rx = c.rx_len;
        if (rx != s->seen_rx || flags != s->seen_flags) { // the host only ever appends
            c.want_rx = 0;
            event_in(s);
            if (flags != s->seen_flags)
                event_out(s);
            s->seen_rx = rx;
            s->seen_flags = flags;
        }
        if (c.want_tx && (tx_room(c) >= abi::kTxBytes / 3 || c.error)) {
            c.want_tx = 0;
            event_out(s);
        }
    }
    seen_offered = gk_shared_page.offered;
}

void collect_conn_interest(File* f, u32 events) {
    if (f->kind != Kind::socket)
        return;
    auto* s = static_cast<Socket*>(f);
    if (s->mode != Mode::connection)
        return;
    abi::Conn& c = conn_of(s);
    if (events & POLLIN_)
        c.want_rx = 1;
    if ((events & POLLOUT_) && tx_room(c) < abi::kTxBytes / 3)
        c.want_tx = 1;
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
    if (f->kind == Kind::pipe || f->kind == Kind::pair)
        return pipe_bytes_ready(f);
    return -1;
}

i64 sys_socket(const Args& c) {
    const u32 family = static_cast<u32>(c.a[0]), type = static_cast<u32>(c.a[1]) & 0xf;
    if (c.a[1] & ~u64{0xf | O_NONBLOCK_ | O_CLOEXEC_})
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
        return host_call(49, static_cast<u64>(s->handle), c.a[1], bytes);
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
    const i64 result = host_call(abi::kBindAddress, s->family, address(s->local), bytes);
    if (result < 0) {
        s->local_bytes = 0;
        return result;
    }
    s->mode = Mode::bound;
    return 0;
}

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
    u32 id = 0;
    while (id < abi::kMaxListeners && (listeners_used & (u32{1} << id)))
        ++id;
    if (id == abi::kMaxListeners)
        return -ENOBUFS;
    const i64 result = host_call(abi::kListen, id, s->family, address(s->local), s->local_bytes, c.a[1]);
    if (result < 0)
        return result;
    listeners_used |= u32{1} << id;
    s->listener = id;
    s->mode = Mode::listening;
    activate(s);
    return 0;
}

i64 sys_accept4(const Args& c) {
    if (c.a[3] & ~u64{O_NONBLOCK_ | O_CLOEXEC_})
        return -EINVAL;
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (s->mode != Mode::listening)
        return -EINVAL;
    ref(s);
    i32 slot;
    while ((slot = offered_to(s->listener)) < 0) {
        const Wake wake = nonblocking(s) ? Wake::timeout : wait_io(until(s->receive_timeout));
        if (wake == Wake::event)
            continue;
        const i64 result = wake == Wake::signal ? -ERESTARTSYS : -EAGAIN;
        unref(s);
        return result;
    }
    Socket* fresh = make_socket(s->family, s->type, s->protocol, static_cast<u32>(c.a[3]) & O_NONBLOCK_);
    if (!fresh) {
        unref(s);
        return -ENOMEM;
    }
    const i32 fd = install(fresh, (c.a[3] & O_CLOEXEC_) != 0);
    unref(s);
    if (fd < 0) {
        unref(fresh);
        return fd;
    }
    abi::Conn& conn = gk_conn_table[slot];
    conn.state = abi::kConnOpen;
    if (gk_shared_page.offered)
        --gk_shared_page.offered;
    seen_offered = gk_shared_page.offered;
    fresh->mode = Mode::connection;
    fresh->slot = static_cast<u32>(slot);
    fresh->receive_timeout = s->receive_timeout;
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
    i64 result = host_call(42, static_cast<u64>(s->handle), c.a[1], c.a[2]);
    if (result != -EINPROGRESS)
        return result;
    if (nonblocking(s))
        return result;
    while (!(poll_handle(s->handle, POLLOUT_) & (POLLOUT_ | POLLERR_ | POLLHUP_))) {
        add_interest(s->handle, POLLOUT_);
        if (wait_io(until(s->send_timeout)) == Wake::signal)
            return -EINTR;
    }
    i32 status = 0;
    u32 length = 4;
    host_call(55, static_cast<u64>(s->handle), 1 /*SOL_SOCKET*/, 4 /*SO_ERROR*/, address(&status), address(&length));
    return -static_cast<i64>(status);
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
        return host_call(51, static_cast<u64>(s->handle), c.a[1], c.a[2]);
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
        return host_call(52, static_cast<u64>(s->handle), c.a[1], c.a[2]);
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
        if (c.a[1] != 1)
            notify_io();
        return 0;
    }
    if (s->mode != Mode::connection)
        return -ENOTCONN;
    if (c.a[1] != 1)
        s->read_shut = true;
    if (c.a[1] != 0)
        conn_of(s).shut_write = 1;
    event_in(s);
    event_out(s);
    return 0;
}

i64 sys_setsockopt(const Args& c) {
    if (is_pair(c.a[0]))
        return 0;
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (s->mode == Mode::host)
        return host_call(54, static_cast<u64>(s->handle), c.a[1], c.a[2], c.a[3], c.a[4]);
    const u32 level = static_cast<u32>(c.a[1]), name = static_cast<u32>(c.a[2]);
    if (level == 1) {
        if (name == 20 || name == 21 || name == 66 || name == 67) { // SO_RCVTIMEO, SO_SNDTIMEO
            struct { i64 sec, usec; } t;
            if (c.a[4] < sizeof(t))
                return -EINVAL;
            if (!get_user(t, c.a[3]))
                return -EFAULT;
            const u64 ns = t.sec < 0 ? 0 : to_ns(Timespec{t.sec, 0}) + static_cast<u64>(t.usec) * 1000;
            (name == 20 || name == 66 ? s->receive_timeout : s->send_timeout) = ns;
            return 0;
        }
        if (name == 13) { // SO_LINGER
            struct { i32 on, seconds; } linger;
            if (c.a[4] < sizeof(linger))
                return -EINVAL;
            if (!get_user(linger, c.a[3]))
                return -EFAULT;
            s->reset_on_close = linger.on && linger.seconds == 0;
            return 0;
        }
    }
    // Options that shape traffic the host carries: SO_REUSEADDR, KEEPALIVE, buffers; TCP_NODELAY and the like; IPV6_V6ONLY.
    if (level == 1 || level == 6 || level == 41 || level == 0) {
        i32 value;
        if (c.a[4] < 4)
            return level == 1 || level == 6 ? -EINVAL : 0;
        return get_user(value, c.a[3]) ? 0 : -EFAULT;
    }
    return -ENOPROTOOPT;
}

i64 sys_getsockopt(const Args& c) {
    i64 error = 0;
    u32 family = AF_UNIX_, type = SOCK_STREAM_;
    Socket* s = nullptr;
    if (!is_pair(c.a[0])) {
        s = socket_of(c.a[0], error);
        if (!s)
            return error;
        if (s->mode == Mode::host)
            return host_call(55, static_cast<u64>(s->handle), c.a[1], c.a[2], c.a[3], c.a[4]);
        family = s->family;
        type = s->type;
    }
    u32 room;
    if (!get_user(room, c.a[4]))
        return -EFAULT;
    if (static_cast<i32>(room) < 0)
        return -EINVAL;
    i32 value = 0;
    const u32 level = static_cast<u32>(c.a[1]), name = static_cast<u32>(c.a[2]);
    if (level == 1) {
        switch (name) {
        case 3: value = static_cast<i32>(type); break;
        case 4:
            if (s && s->mode == Mode::connection) {
                value = conn_of(s).error;
                conn_of(s).error = 0;
            }
            break;
        case 7:
        case 8: value = 212992; break;
        case 2: value = 1; break;
        case 13: case 20: case 21: {
            const u64 none[2] = {0, 0};
            const u32 n = room < 16 ? room : name == 13 ? 8 : 16;
            return copy_to_user(c.a[3], none, n) && put_user(c.a[4], n) ? 0 : -EFAULT;
        }
        case 30: value = s && s->mode == Mode::listening; break;
        case 38: value = family == AF_UNIX_ ? 0 : 6; break;
        case 39: value = static_cast<i32>(family); break;
        case 9: case 5: case 6: case 10: case 15: case 16: break;
        default: return -ENOPROTOOPT;
        }
    } else if (level == 6) {
        if (name == 1)
            value = 1;
        else if (name == 2)
            value = 1460;
        else if (name == 11)
            return -ENOPROTOOPT;
    } else if (level == 41 || level == 0) {
        value = 0;
    } else {
        return -EOPNOTSUPP;
    }
    const u32 n = room < 4 ? room : 4;
    return copy_to_user(c.a[3], &value, n) && put_user(c.a[4], n) ? 0 : -EFAULT;
}

namespace {

// One sendto/recvfrom/sendmsg/recvmsg on whatever the descriptor is.
i64 transfer(File* f, Cursor& cursor, u32 flags, bool sending, u64 name, u32* name_bytes, u32* out_flags) {
    if (f->kind == Kind::pair) {
        const u32 before = f->flags;
        if (flags & MSG_DONTWAIT_)
            f->flags |= O_NONBLOCK_;
        if (name_bytes)
            *name_bytes = 0;
        const u64 pending = current->sig_pending;
        const i64 n = sending ? f->ops->write(f, cursor, -1) : f->ops->read(f, cursor, -1);
        if (sending && n == -EPIPE && (flags & MSG_NOSIGNAL_))
            current->sig_pending = pending;
        f->flags = (f->flags & ~u32{O_NONBLOCK_}) | (before & O_NONBLOCK_);
        return n;
    }
    if (f->kind != Kind::socket)
        return -ENOTSOCK;
    auto* s = static_cast<Socket*>(f);
    return sending ? send(s, cursor, flags, name, name_bytes ? *name_bytes : 0)
                   : receive(s, cursor, flags, name, name_bytes, out_flags);
}

struct MsgHeader { u64 name; u32 name_bytes, pad; u64 iov, iov_count, control, control_bytes; u32 flags, pad2; };

i64 message(File* f, u64 header_at, u32 flags, bool sending) {
    MsgHeader h;
    if (!get_user(h, header_at))
        return -EFAULT;
    if (h.iov_count > 1024)
        return -EMSGSIZE;
    IoVec* vectors = static_cast<IoVec*>(allocate(h.iov_count * sizeof(IoVec) + sizeof(IoVec)));
    if (!vectors)
        return -ENOMEM;
    i64 n = -EFAULT;
    if (copy_from_user(vectors, h.iov, h.iov_count * sizeof(IoVec))) {
        u64 total = 0;
        for (u64 i = 0; i < h.iov_count; ++i)
            total += vectors[i].length > 0x7fffffff ? 0x7fffffff : vectors[i].length;
        Cursor cursor{vectors, h.iov_count, total};
        u32 out_flags = 0;
        u32 name_bytes = h.name ? h.name_bytes : 0;
        n = transfer(f, cursor, flags, sending, h.name, &name_bytes, &out_flags);
        if (n >= 0 && !sending) {
            h.name_bytes = name_bytes;
            h.control_bytes = 0;
            h.flags = out_flags;
            if (!put_user(header_at, h))
                n = -EFAULT;
        }
    }
    release(vectors, h.iov_count * sizeof(IoVec) + sizeof(IoVec));
    return n;
}

i64 plain(const Args& c, bool sending) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    const IoVec one{c.a[1], c.a[2] > 0x7ffff000 ? 0x7ffff000 : c.a[2]};
    Cursor cursor{&one, 1, one.length};
    u32 name_bytes = 0;
    if (sending)
        name_bytes = static_cast<u32>(c.a[5]);
    else if (c.a[4] && (!c.a[5] || !get_user(name_bytes, c.a[5])))
        return -EFAULT;
    ref(f);
    const i64 n = transfer(f, cursor, static_cast<u32>(c.a[3]), sending, c.a[4], &name_bytes, nullptr);
    unref(f);
    if (n >= 0 && !sending && c.a[4] && !put_user(c.a[5], name_bytes))
        return -EFAULT;
    return n;
}

} // namespace

i64 sys_sendto(const Args& c) { return plain(c, true); }
i64 sys_recvfrom(const Args& c) { return plain(c, false); }

i64 sys_sendmsg(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    ref(f);
    const i64 n = message(f, c.a[1], static_cast<u32>(c.a[2]), true);
    unref(f);
    return n;
}
i64 sys_recvmsg(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    ref(f);
    const i64 n = message(f, c.a[1], static_cast<u32>(c.a[2]), false);
    unref(f);
    return n;
}

namespace {
i64 many_messages(const Args& c, bool sending) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    const u32 count = static_cast<u32>(c.a[2]) > 1024 ? 1024 : static_cast<u32>(c.a[2]);
    ref(f);
    i64 done = 0, n = 0;
    for (u32 i = 0; i < count; ++i) {
        const u64 at = c.a[1] + i * 64;
        n = message(f, at, static_cast<u32>(c.a[3]) | (i ? u32{MSG_DONTWAIT_} : 0), sending);
        if (n < 0)
            break;
        const u32 bytes = static_cast<u32>(n);
        if (!put_user(at + sizeof(MsgHeader), bytes)) {
            n = -EFAULT;
            break;
        }
        ++done;
    }
    unref(f);
    return done ? done : n;
}
} // namespace
i64 sys_sendmmsg(const Args& c) { return many_messages(c, true); }
i64 sys_recvmmsg(const Args& c) { return many_messages(c, false); }

} // namespace gk
