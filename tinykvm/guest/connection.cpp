// Connections of clients, and to programs in other machines of the process. Their bytes are in buffers shared with the
// host.
#include "tinykvm/guest/socket.hpp"

namespace gk {
namespace {

Socket* active; // listening sockets and connections
u32 seen_offered;

u8* rx_buffer(u32 slot) { return gk_conn_buffers + static_cast<u64>(slot) * (abi::kRxBytes + abi::kTxBytes); }
u8* tx_buffer(u32 slot) { return rx_buffer(slot) + abi::kRxBytes; }
u32 tx_room(const abi::Conn& c) { return abi::kTxBytes - c.tx_len; }

void notify_writer(Socket* s) {
    abi::Conn& c = conn_of(s);
    if (c.want_tx && (tx_room(c) >= abi::kTxBytes / 3 || c.error)) {
        c.want_tx = 0;
        event_out(s);
    }
}

// Counts events for what the host has changed.
void notice(Socket* s) {
    abi::Conn& c = conn_of(s);
    const u32 flags = c.rx_eof | static_cast<u32>(c.error != 0) << 1;
    const u32 rx = c.rx_len;
    if (rx != s->seen_rx || flags != s->seen_flags) { // the host only appends
        c.want_rx = 0;
        event_in(s);
        if (flags != s->seen_flags)
            event_out(s);
        s->seen_rx = rx;
        s->seen_flags = flags;
    }
    notify_writer(s);
}

// Also notices if the host finds that the client has gone: the program may not learn of it otherwise.
void flush(Socket* s) {
    host_call(abi::kConnFlush, s->slot);
    notice(s);
}

} // namespace

Socket* first_active() { return active; }
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

void become_connection(Socket* s, u32 slot) {
    const abi::Conn& c = gk_conn_table[slot];
    s->mode = Mode::connection;
    s->slot = slot;
    s->seen_rx = c.rx_len;
    s->seen_flags = c.rx_eof;
    activate(s);
}

i64 connect_near(Socket* s, const u8* to, u32 bytes) {
    const bool unconnected = s->mode == Mode::fresh || s->mode == Mode::bound;
    if (!gk_shared_page.neighbours || s->type != SOCK_STREAM_ || !unconnected || bytes < 2)
        return -ENOENT;
    const i64 slot = host_call(abi::kConnectNear, address(to), bytes, s->family);
    if (slot < 0)
        return slot;
    if (s->listener != kNoListener) { // it was bound
        host_call(abi::kUnlisten, s->listener);
        free_listener(s);
    }
    become_connection(s, static_cast<u32>(slot));
    event_out(s);
    return 0;
}

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
        if (!done && !c.rx_eof) // as on Linux: after end of file, an error no longer matters to a reader
            if (const i64 error = connection_error(s))
                return -error;
        if (c.rx_eof || s->read_shut || c.error)
            return static_cast<i64>(done);
        if (!wait) {
            if (done || !poll_host_rarely())
                return done ? static_cast<i64>(done) : -EAGAIN;
            if (c.rx_off == c.rx_len && !c.rx_eof && !c.error)
                return -EAGAIN;
            continue;
        }
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
            i64 error = connection_error(s);
            if (error == 0)
                error = EPIPE;
            if (!(flags & MSG_NOSIGNAL_) && error == EPIPE)
                broken_pipe();
            return -error;
        }
        if (tx_room(c) == 0) {
            flush(s);
            if (tx_room(c) > 0 || c.error) {
                if (done && !let_others_run())
                    break;
                continue;
            }
            // Set it now, not only at the next poll: edge-triggered epoll must not miss the next event.
            c.want_tx = 1;
            if (!wait)
                return done ? static_cast<i64>(done) : -EAGAIN;
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
        note_unsent();
        done += static_cast<u64>(moved);
    }
    return static_cast<i64>(done);
}

i64 connection_error(Socket* s) {
    const i64 error = s->error_told ? 0 : conn_of(s).error;
    s->error_told |= error != 0;
    return error;
}

u32 connection_poll(Socket* s) {
    const abi::Conn& c = conn_of(s);
    u32 events = 0;
    if (c.rx_off < c.rx_len || c.rx_eof || s->read_shut || c.error)
        events |= POLLIN_ | POLLRDNORM_;
    if (c.rx_eof || s->read_shut)
        events |= POLLRDHUP_;
    if (c.error)
        events |= POLLHUP_ | POLLRDHUP_;
    if (c.error && !s->error_told)
        events |= POLLERR_;
    if ((c.rx_eof || s->read_shut) && c.shut_write)
        events |= POLLHUP_;
    // As on Linux, the socket is writable if a third of the buffer is free. The host may be able to send a full buffer.
    if (tx_room(c) < abi::kTxBytes / 3 && !c.error)
        flush(s);
    if (tx_room(c) >= abi::kTxBytes / 3 || c.error || c.shut_write)
        events |= POLLOUT_ | POLLWRNORM_;
    return events;
}

i32 offered_to(u32 listener) {
    if (gk_shared_page.offered == 0)
        return -1;
    for (u32 i = 0; i < gk_shared_page.conn_limit && i < abi::kMaxConns; ++i)
        if (gk_conn_table[i].state == abi::kConnOffered && gk_conn_table[i].listener == listener)
            return static_cast<i32>(i);
    return -1;
}

void noticed_offers() { seen_offered = gk_shared_page.offered; }

void conns_updated() {
    for (Socket* s = active; s; s = s->next) {
        if (s->mode == Mode::listening) {
            if (gk_shared_page.offered != seen_offered && offered_to(s->listener) >= 0)
                event_in(s);
            continue;
        }
        notice(s);
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

} // namespace gk
