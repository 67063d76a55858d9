// Socket pairs: two rings, of bytes (SOCK_STREAM) or of messages that are each preceded by their length (SOCK_DGRAM,
// SOCK_SEQPACKET). Ancillary data is not carried.
#include "tinykvm/guest/socket.hpp"

namespace gk {
namespace {

constexpr u32 kRingBytes = 65536, kMessageRingBytes = 262144;

struct PairEnd;
struct Ring {
    u8* data = nullptr;
    u32 size = 0, head = 0, used = 0; // bytes [head, head+used) modulo the size
    PairEnd* reader = nullptr;
    PairEnd* writer = nullptr;
};
struct PairEnd : File {
    Ring* in = nullptr;  // what this end reads
    Ring* out = nullptr; // what it writes
    u32 type = SOCK_STREAM_;
    bool read_shut = false, write_shut = false;
    bool reset = false; // the other end was closed with unread bytes
    u64 receive_timeout = 0, send_timeout = 0; // ns, 0: none
};

bool messages(const PairEnd* e) { return e->type != SOCK_STREAM_; }
bool waits(const File* f, u32 flags) { return !nonblocking(f) && !(flags & MSG_DONTWAIT_); }

// Between a ring, from `at` bytes after its head, and a cursor: bytes moved, or -EFAULT.
i64 move_out(const Ring* r, u32 at, u64 bytes, Cursor& to) {
    u64 done = 0;
    while (done < bytes) {
        const u32 here = static_cast<u32>((r->head + at + done) % r->size);
        const u64 run = r->size - here, left = bytes - done;
        const i64 n = to.put(r->data + here, run < left ? run : left);
        if (n <= 0)
            return done ? static_cast<i64>(done) : n;
        done += static_cast<u64>(n);
    }
    return static_cast<i64>(done);
}
i64 move_in(Ring* r, u32 at, u64 bytes, Cursor& from) {
    u64 done = 0;
    while (done < bytes) {
        const u32 here = static_cast<u32>((r->head + at + done) % r->size);
        const u64 run = r->size - here, left = bytes - done;
        const i64 n = from.get(r->data + here, run < left ? run : left);
        if (n <= 0)
            return done ? static_cast<i64>(done) : n;
        done += static_cast<u64>(n);
    }
    return static_cast<i64>(done);
}

void consume(Ring* r, u32 bytes) {
    r->head = (r->head + bytes) % r->size;
    r->used -= bytes;
    if (r->used == 0)
        r->head = 0; // keeps touching the same pages
    if (r->writer)
        event_out(r->writer);
}

u32 message_length(const Ring* r) {
    u32 length;
    IoVec v{address(&length), sizeof(length)};
    Cursor to{&v, 1, sizeof(length), true};
    move_out(r, 0, sizeof(length), to);
    return length;
}

i64 receive_message(PairEnd* e, Cursor& to, u32 flags, u64 deadline, u32* out_flags) {
    Ring* r = e->in;
    while (r->used == 0) {
        if (e->read_shut || (!r->writer && e->type == SOCK_SEQPACKET_))
            return 0;
        if (!waits(e, flags))
            return -EAGAIN;
        const Wake wake = wait_io(deadline);
        if (wake == Wake::signal)
            return e->receive_timeout ? -EINTR : -ERESTARTSYS;
        if (wake == Wake::timeout)
            return -EAGAIN;
    }
    const u32 length = message_length(r);
    const u32 wanted = length < to.left ? length : static_cast<u32>(to.left);
    const i64 n = move_out(r, sizeof(length), wanted, to);
    if (n < 0)
        return n;
    if (!(flags & MSG_PEEK_))
        consume(r, sizeof(length) + length);
    if (wanted < length && out_flags)
        *out_flags |= MSG_TRUNC_;
    return flags & MSG_TRUNC_ ? length : wanted;
}

i64 receive_stream(PairEnd* e, Cursor& to, u32 flags, u64 deadline) {
    Ring* r = e->in;
    u64 done = 0;
    if (to.left == 0)
        return 0;
    for (;;) {
        if (e->reset && r->used == 0) {
            if (done)
                break;
            e->reset = false;
            return -ECONNRESET;
        }
        if (r->used > 0) {
            const u64 n = r->used < to.left ? r->used : to.left;
            const i64 moved = move_out(r, 0, n, to);
            if (moved < 0)
                return done ? static_cast<i64>(done) : moved;
            done += static_cast<u64>(moved);
            if (flags & MSG_PEEK_)
                break;
            consume(r, static_cast<u32>(moved));
            if (static_cast<u64>(moved) < n)
                break;
        }
        if (to.left == 0 || (done && !(flags & MSG_WAITALL_)) || !r->writer || e->read_shut)
            break;
        if (!waits(e, flags))
            return done ? static_cast<i64>(done) : -EAGAIN;
        const Wake wake = wait_io(deadline);
        if (wake == Wake::signal)
            return done ? static_cast<i64>(done) : e->receive_timeout ? -EINTR : -ERESTARTSYS;
        if (wake == Wake::timeout)
            return done ? static_cast<i64>(done) : -EAGAIN;
    }
    return static_cast<i64>(done);
}

i64 pair_error(PairEnd* e, u32 flags) {
    if (!e->write_shut && !e->out->reader && e->type == SOCK_DGRAM_)
        return -ECONNREFUSED;
    if (!(flags & MSG_NOSIGNAL_) && !messages(e))
        broken_pipe();
    return -EPIPE;
}

i64 pair_read(File* f, Cursor& to, i64) { return pair_receive(f, to, 0, nullptr); }
i64 pair_write(File* f, Cursor& from, i64) { return pair_send(f, from, 0); }

u32 pair_poll(File* f) {
    auto* e = static_cast<PairEnd*>(f);
    u32 events = 0;
    const bool ended = !e->in->writer && e->type != SOCK_DGRAM_;
    if (e->in->used > 0 || e->read_shut || ended || e->reset)
        events |= POLLIN_ | POLLRDNORM_;
    if (e->read_shut || ended)
        events |= POLLRDHUP_;
    if (ended || (e->read_shut && e->write_shut))
        events |= POLLHUP_;
    if (e->reset)
        events |= POLLERR_;
    if (e->out->size - e->out->used >= 4096)
        events |= POLLOUT_ | POLLWRNORM_;
    return events;
}

void leave(Ring* r, PairEnd* e) {
    if (r->reader == e) {
        if (r->used && r->writer && !messages(e)) {
            r->writer->reset = true;
            event_in(r->writer);
        }
        r->reader = nullptr;
        if (r->writer)
            event_out(r->writer);
    } else {
        r->writer = nullptr;
        if (r->reader)
            event_in(r->reader);
    }
    if (!r->reader && !r->writer) {
        release(r->data, r->size);
        destroy(r);
    }
}

void pair_close(File* f) {
    auto* e = static_cast<PairEnd*>(f);
    leave(e->in, e);
    leave(e->out, e);
    destroy(e);
}

const FileOps pair_ops{pair_read, pair_write, pair_poll, pair_close, "socket"};

PairEnd* make_end(u32 type, u32 flags) {
    auto* e = make<PairEnd>();
    if (e) {
        e->ops = &pair_ops;
        e->kind = Kind::pair;
        e->flags = flags;
        e->type = type;
    }
    return e;
}

Ring* make_ring(u32 size) {
    auto* r = make<Ring>();
    if (!r)
        return nullptr;
    r->data = static_cast<u8*>(allocate_dirty(size));
    r->size = size;
    if (r->data)
        return r;
    destroy(r);
    return nullptr;
}

} // namespace

i64 pair_receive(File* f, Cursor& to, u32 flags, u32* out_flags) {
    auto* e = static_cast<PairEnd*>(f);
    const u64 deadline = until(e->receive_timeout);
    return messages(e) ? receive_message(e, to, flags, deadline, out_flags) : receive_stream(e, to, flags, deadline);
}

i64 pair_send(File* f, Cursor& from, u32 flags) {
    auto* e = static_cast<PairEnd*>(f);
    Ring* r = e->out;
    const u64 deadline = until(e->send_timeout);
    const u32 header = messages(e) ? sizeof(u32) : 0;
    const u32 length = static_cast<u32>(from.left < r->size ? from.left : r->size);
    if (header && length > r->size - header)
        return -EMSGSIZE;
    u64 done = 0;
    while (from.left > 0 || (header && !done)) {
        if (!r->reader || e->write_shut)
            return done ? static_cast<i64>(done) : pair_error(e, flags);
        const u32 room = r->size - r->used;
        if (room == 0 || (header && room < header + length)) {
            if (!waits(f, flags))
                return done ? static_cast<i64>(done) : -EAGAIN;
            const Wake wake = wait_io(deadline);
            if (wake == Wake::signal)
                return done ? static_cast<i64>(done) : e->send_timeout ? -EINTR : -ERESTARTSYS;
            if (wake == Wake::timeout)
                return done ? static_cast<i64>(done) : -EAGAIN;
            continue;
        }
        if (header) {
            u32 word = length;
            IoVec v{address(&word), header};
            Cursor c{&v, 1, header, true};
            move_in(r, r->used, header, c);
            if (move_in(r, r->used + header, length, from) != static_cast<i64>(length))
                return -EFAULT;
            r->used += header + length;
            event_in(r->reader);
            return length;
        }
        const i64 moved = move_in(r, r->used, room < from.left ? room : from.left, from);
        if (moved <= 0)
            return done ? static_cast<i64>(done) : moved;
        r->used += static_cast<u32>(moved);
        done += static_cast<u64>(moved);
        event_in(r->reader);
    }
    return static_cast<i64>(done);
}

i64 pair_shutdown(File* f, u64 how) {
    auto* e = static_cast<PairEnd*>(f);
    if (how > 2)
        return -EINVAL;
    PairEnd* other = e->out->reader;
    if (how != 1) {
        e->read_shut = true;
        if (other)
            other->write_shut = true;
    }
    if (how != 0) {
        e->write_shut = true;
        if (other)
            other->read_shut = true;
    }
    PairEnd* const both[] = {e, other};
    for (PairEnd* end : both)
        if (end) {
            event_in(end);
            event_out(end);
        }
    return 0;
}

u32 pair_type(const File* f) { return static_cast<const PairEnd*>(f)->type; }
u64& pair_timeout(File* f, bool receiving) {
    auto* e = static_cast<PairEnd*>(f);
    return receiving ? e->receive_timeout : e->send_timeout;
}

i64 pair_bytes_ready(File* f) {
    auto* e = static_cast<PairEnd*>(f);
    return messages(e) && e->in->used ? message_length(e->in) : e->in->used;
}

i64 sys_socketpair(const Args& c) {
    const u32 type = static_cast<u32>(c.a[1]) & 0xf;
    if (static_cast<u32>(c.a[1]) & ~(0xfu | O_NONBLOCK_ | O_CLOEXEC_))
        return -EINVAL;
    if (c.a[0] != AF_UNIX_)
        return c.a[0] == AF_INET_ || c.a[0] == AF_INET6_ ? -EOPNOTSUPP : -EAFNOSUPPORT;
    if (type != SOCK_STREAM_ && type != SOCK_DGRAM_ && type != SOCK_SEQPACKET_)
        return type > 10 ? -EINVAL : -94; // ESOCKTNOSUPPORT
    if (c.a[2] > 1)
        return -EPROTONOSUPPORT;
    const u32 flags = O_RDWR_ | (static_cast<u32>(c.a[1]) & O_NONBLOCK_);
    PairEnd* const ends[] = {make_end(type, flags), make_end(type, flags)};
    const u32 size = type == SOCK_STREAM_ ? kRingBytes : kMessageRingBytes;
    Ring* const rings[] = {make_ring(size), make_ring(size)};
    if (!ends[0] || !ends[1] || !rings[0] || !rings[1]) {
        for (PairEnd* e : ends)
            if (e)
                destroy(e);
        for (Ring* r : rings)
            if (r) {
                release(r->data, r->size);
                destroy(r);
            }
        return -ENFILE;
    }
    for (u32 i = 0; i < 2; ++i) {
        rings[i]->writer = ends[i];
        rings[i]->reader = ends[1 - i];
        ends[i]->out = rings[i];
        ends[1 - i]->in = rings[i];
    }
    return install_two(ends[0], ends[1], (static_cast<u32>(c.a[1]) & O_CLOEXEC_) != 0, c.a[3]);
}

} // namespace gk
