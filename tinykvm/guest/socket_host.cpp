// Outbound and datagram sockets, which live on the host. The host never blocks; blocking calls wait in the guest
// kernel.
#include "tinykvm/guest/socket.hpp"

namespace gk {
namespace {

enum : u32 {
    kSocket = 41,
    kConnect = 42,
    kSendmsg = 46,
    kRecvmsg = 47,
    kBind = 49,
    kSetsockopt = 54,
    kGetsockopt = 55
};
constexpr u32 kEnded = POLLERR_ | POLLHUP_;

} // namespace

i64 become_host(Socket* s) {
    if (s->mode == Mode::host)
        return 0;
    // If the host has bound the address already, use that socket. While a snapshot is built, it has not.
    i64 handle = s->mode == Mode::bound ? host_call(abi::kTakeBound, s->listener) : -ENOENT;
    const bool bound = handle >= 0;
    if (handle == -ENOENT)
        handle = host_call(kSocket, s->family, s->type, s->protocol);
    if (handle < 0)
        return handle;
    // Apply the options and the address that the program has set.
    for (u32 i = 0; i < s->option_count; ++i) {
        const SetOption& o = s->options[i];
        host_call(kSetsockopt, static_cast<u64>(handle), o.level, o.name, address(&o.value), sizeof(o.value));
    }
    if (s->mode == Mode::bound && !bound)
        if (const i64 error = host_call(kBind, static_cast<u64>(handle), address(s->local), s->local_bytes);
            error < 0) {
            host_call(abi::kCloseHandle, static_cast<u64>(handle));
            return error;
        }
    free_listener(s);
    s->handle = static_cast<i32>(handle);
    s->mode = Mode::host;
    return 0;
}

i64 host_connect(Socket* s, u64 at, u64 bytes) {
    if (s->connected && s->type == SOCK_STREAM_)
        return -EISCONN;
    const u64 deadline = until(s->send_timeout);
    i64 result = host_call(kConnect, static_cast<u64>(s->handle), at, bytes);
    took_in(s);
    took_out(s);
    s->connecting = result == -EINPROGRESS || result == -EALREADY;
    if (result == -EALREADY && !nonblocking(s))
        result = -EINPROGRESS; // an earlier connect() was interrupted by a signal: wait for it
    if (result == -EINPROGRESS && !nonblocking(s)) {
        while (!(poll_handle(s->handle, POLLOUT_) & (POLLOUT_ | kEnded))) {
            add_interest(s->handle, POLLOUT_);
            const Wake wake = wait_io(deadline);
            if (wake == Wake::signal)
                return -ERESTARTSYS;
            if (wake == Wake::timeout)
                return -EINPROGRESS;
        }
        i32 status = 0;
        u32 length = sizeof(status);
        host_call(kGetsockopt, static_cast<u64>(s->handle), 1 /*SOL_SOCKET*/, 4 /*SO_ERROR*/, address(&status),
                  address(&length));
        result = -static_cast<i64>(status);
    }
    s->connected |= result == 0;
    return result;
}

i64 host_message(Socket* s, Cursor& c, u32 flags, bool send, u64 name, u32* name_bytes, u32* out_flags) {
    if (name && !user_ok(name, 0))
        return -EFAULT;
    const bool wait = !nonblocking(s) && !(flags & MSG_DONTWAIT_);
    const u64 deadline = until(send ? s->send_timeout : s->receive_timeout);
    const bool stream = s->type == SOCK_STREAM_;
    // A blocking send moves all bytes, as does a receive with MSG_WAITALL. Datagrams are never split.
    const bool all = stream && wait && (send || (flags & MSG_WAITALL_)) && !(flags & MSG_PEEK_);
    u64 done = 0;
    for (;;) {
        abi::SocketMessage m{};
        m.iov = address(c.vec);
        m.iov_count = c.count;
        m.name = name;
        m.name_bytes = name_bytes ? *name_bytes : 0;
        m.flags = (flags | MSG_DONTWAIT_) & ~u32{MSG_WAITALL_};
        const i64 n = host_call(send ? kSendmsg : kRecvmsg, static_cast<u64>(s->handle), address(&m));
        if (send)
            took_out(s);
        else
            took_in(s);
        if (n != -EAGAIN) {
            if (name_bytes)
                *name_bytes = m.name_bytes;
            if (out_flags)
                *out_flags = m.flags;
            // After a part was sent, this call returns its size. The next one fails (net/ipv4/tcp.c, do_error).
            if (n == -EPIPE && !(flags & MSG_NOSIGNAL_) && send && stream && !done)
                broken_pipe();
            if (n <= 0)
                return done ? static_cast<i64>(done) : n;
            done += static_cast<u64>(n);
            if (!all || static_cast<u64>(n) >= c.left)
                return static_cast<i64>(done);
            c.advance(static_cast<u64>(n));
            continue;
        }
        if (!wait)
            return n;
        add_interest(s->handle, send ? POLLOUT_ : POLLIN_);
        const Wake wake = wait_io(deadline);
        if (wake == Wake::event)
            continue;
        const bool timed = (send ? s->send_timeout : s->receive_timeout) != 0;
        return done ? static_cast<i64>(done) : wake == Wake::timeout ? -EAGAIN : timed ? -EINTR : -ERESTARTSYS;
    }
}

} // namespace gk
