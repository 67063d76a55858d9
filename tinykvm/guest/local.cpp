// Sending and receiving between two sockets in the machine.
#include "tinykvm/guest/local.hpp"

namespace gk {
namespace {

constexpr u32 kRingBytes = 65536, kMessageRingBytes = 262144;

bool messages(const Socket* s) { return s->type != SOCK_STREAM_; }
bool waits(const Socket* s, u32 flags) { return !nonblocking(s) && !(flags & MSG_DONTWAIT_); }

// Calls move(data, bytes) for each contiguous part of the ring, beginning `at` bytes after its head. Bytes moved, or
// the error of the first move.
template <class Move>
i64 each_part(const Ring* r, u32 at, u64 bytes, Move move) {
    u64 done = 0;
    while (done < bytes) {
        const u32 here = static_cast<u32>((r->head + at + done) % r->size);
        const u64 run = r->size - here, left = bytes - done;
        const i64 n = move(r->data + here, run < left ? run : left);
        if (n <= 0)
            return done ? static_cast<i64>(done) : n;
        done += static_cast<u64>(n);
    }
    return static_cast<i64>(done);
}
i64 move_out(const Ring* r, u32 at, u64 bytes, Cursor& to) {
    return each_part(r, at, bytes, [&](const u8* from, u64 part) { return to.put(from, part); });
}
i64 move_in(Ring* r, u32 at, u64 bytes, Cursor& from) {
    return each_part(r, at, bytes, [&](u8* to, u64 part) { return from.get(to, part); });
}

void consume(Ring* r, u32 bytes) {
    r->head = (r->head + bytes) % r->size;
    r->used -= bytes;
    r->taken += bytes;
    if (r->used == 0)
        r->head = 0; // so that a ring that is always emptied dirties few pages
    if (r->has_mark && r->taken > r->mark)
        r->has_mark = r->urgent_waits = false;
    if (r->writer)
        event_out(r->writer->socket);
}

u32 message_length(const Ring* r) {
    u32 length;
    IoVec v{address(&length), sizeof(length)};
    Cursor to{&v, 1, sizeof(length), true};
    move_out(r, 0, sizeof(length), to);
    return length;
}

// Takes the files that came with the bytes before `end`, after the reader has read up to there. Stores them in `out`,
// or drops them if it is null.
void take_passed(Ring* r, u64 end, bool peek, Passed** out) {
    Passed* p = r->first;
    if (!p || p->begin >= end)
        return;
    if (peek) {
        Passed* copy = out ? make_passed(p->count) : nullptr;
        for (u32 i = 0; copy && i < p->count; ++i) {
            copy->files[i] = p->files[i];
            ref(copy->files[i]);
        }
        if (out)
            *out = copy;
        return;
    }
    r->first = p->next;
    if (!r->first)
        r->last = nullptr;
    if (out)
        *out = p;
    else
        drop_passed(p);
}

void queue_passed(Ring* r, Passed* p, u64 begin, u64 end) {
    p->begin = begin;
    p->end = end;
    p->next = nullptr;
    (r->last ? r->last->next : r->first) = p;
    r->last = p;
}

// The result of a call whose wait ended without data or room.
i64 ended_by(Wake wake, u64 done, u64 timeout) {
    return done ? static_cast<i64>(done) : wake == Wake::timeout ? -EAGAIN : timeout ? -EINTR : -ERESTARTSYS;
}

i64 receive_message(Socket* s, Cursor& to, u32 flags, u32* out_flags, Passed** passed) {
    LocalEnd* e = s->end;
    Ring* r = e->in;
    const u64 deadline = until(s->receive_timeout);
    while (r->used == 0) {
        if (e->read_shut || (!r->writer && s->type == SOCK_SEQPACKET_))
            return 0;
        if (!waits(s, flags))
            return -EAGAIN;
        if (const Wake wake = wait_io(deadline); wake != Wake::event)
            return ended_by(wake, 0, s->receive_timeout);
    }
    const u32 length = message_length(r);
    const u32 wanted = length < to.left ? length : static_cast<u32>(to.left);
    const i64 n = move_out(r, sizeof(length), wanted, to);
    if (n < 0)
        return n;
    take_passed(r, r->taken + sizeof(length) + length, (flags & MSG_PEEK_) != 0, passed);
    if (!(flags & MSG_PEEK_))
        consume(r, sizeof(length) + length);
    if (wanted < length && out_flags)
        *out_flags |= MSG_TRUNC_;
    return flags & MSG_TRUNC_ ? length : wanted;
}

// Bytes that one read may take: it stops at the urgent mark, and after bytes that carried files.
u64 readable(const Ring* r, u64 wanted) {
    u64 n = r->used < wanted ? r->used : wanted;
    if (r->has_mark && r->taken < r->mark && r->mark - r->taken < n)
        n = r->mark - r->taken;
    if (r->first && r->first->begin < r->taken + n && r->first->end - r->taken < n)
        n = r->first->end - r->taken;
    return n;
}

i64 receive_stream(Socket* s, Cursor& to, u32 flags, Passed** passed) {
    LocalEnd* e = s->end;
    Ring* r = e->in;
    const u64 deadline = until(s->receive_timeout);
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
            if (done && r->has_mark && r->taken == r->mark)
                break; // a read stops at the mark
            const u64 n = readable(r, to.left);
            const i64 moved = move_out(r, 0, n, to);
            if (moved < 0)
                return done ? static_cast<i64>(done) : moved;
            done += static_cast<u64>(moved);
            const bool files = r->first && r->first->begin < r->taken + static_cast<u64>(moved);
            take_passed(r, r->taken + static_cast<u64>(moved), (flags & MSG_PEEK_) != 0, passed);
            if (flags & MSG_PEEK_)
                break;
            consume(r, static_cast<u32>(moved));
            if (static_cast<u64>(moved) < n || files)
                break;
            if (r->used > 0 && to.left > 0)
                continue;
        }
        if (to.left == 0 || (done && !(flags & MSG_WAITALL_)) || !r->writer || e->read_shut)
            break;
        if (!waits(s, flags))
            return done ? static_cast<i64>(done) : -EAGAIN;
        if (const Wake wake = wait_io(deadline); wake != Wake::event)
            return ended_by(wake, done, s->receive_timeout);
    }
    return static_cast<i64>(done);
}

i64 receive_urgent(Socket* s, Cursor& to, u32 flags, u32* out_flags) {
    Ring* r = s->end->in;
    if (messages(s))
        return -EOPNOTSUPP;
    if (!r->urgent_waits || r->in_line)
        return -EINVAL;
    const u64 room = to.left;
    if (room > 0 && to.put(&r->urgent, 1) != 1)
        return -EFAULT;
    if (out_flags)
        *out_flags |= MSG_OOB_ | (room == 0 ? u32{MSG_TRUNC_} : 0u);
    if (!(flags & MSG_PEEK_))
        r->urgent_waits = false;
    return room > 0 ? 1 : 0;
}

i64 cannot_send(Socket* s, u32 flags) {
    const LocalEnd* e = s->end;
    if (!e->write_shut && !e->out->reader && s->type == SOCK_DGRAM_)
        return -ECONNREFUSED;
    if (!(flags & MSG_NOSIGNAL_) && !messages(s))
        broken_pipe();
    return -EPIPE;
}

// Waits for room for `needed` bytes: 0, or the result of a call that has sent `done` bytes so far.
i64 wait_for_room(Socket* s, u32 needed, u32 flags, u64 deadline, u64 done) {
    LocalEnd* e = s->end;
    Ring* r = e->out;
    for (;;) {
        if (!r->reader || e->write_shut)
            return done ? static_cast<i64>(done) : cannot_send(s, flags);
        if (r->size - r->used >= needed)
            return 0;
        if (!waits(s, flags))
            return done ? static_cast<i64>(done) : -EAGAIN;
        if (const Wake wake = wait_io(deadline); wake != Wake::event)
            return ended_by(wake, done, s->send_timeout);
    }
}

i64 send_message(Socket* s, Cursor& from, u32 flags, Passed*& passed) {
    Ring* r = s->end->out;
    const u32 header = sizeof(u32);
    u32 length = static_cast<u32>(from.left < r->size ? from.left : r->size);
    if (length > r->size - header)
        return -EMSGSIZE;
    if (const i64 error = wait_for_room(s, header + length, flags, until(s->send_timeout), 0); error != 0)
        return error;
    if (move_in(r, r->used + header, length, from) != static_cast<i64>(length))
        return -EFAULT;
    IoVec v{address(&length), header};
    Cursor c{&v, 1, header, true};
    move_in(r, r->used, header, c);
    if (passed)
        queue_passed(r, passed, r->taken + r->used, r->taken + r->used + header + length);
    passed = nullptr;
    r->used += header + length;
    event_in(r->reader->socket);
    return length;
}

i64 send_stream(Socket* s, Cursor& from, u32 flags, Passed*& passed) {
    Ring* r = s->end->out;
    const u64 deadline = until(s->send_timeout);
    u64 done = 0;
    while (from.left > 0) {
        if (const i64 result = wait_for_room(s, 1, flags, deadline, done); result != 0)
            return result;
        const u32 room = r->size - r->used;
        const i64 moved = move_in(r, r->used, room < from.left ? room : from.left, from);
        if (moved <= 0)
            return done ? static_cast<i64>(done) : moved;
        if (passed) // files travel with the first bytes
            queue_passed(r, passed, r->taken + r->used, r->taken + r->used + static_cast<u64>(moved));
        passed = nullptr;
        r->used += static_cast<u32>(moved);
        done += static_cast<u64>(moved);
        event_in(r->reader->socket);
    }
    return static_cast<i64>(done);
}

// Sends with MSG_OOB: the last byte is urgent. It goes beside the stream, or into it if the reader has SO_OOBINLINE.
i64 send_urgent(Socket* s, Cursor& from, u32 flags, Passed*& passed) {
    if (messages(s))
        return -EOPNOTSUPP;
    if (from.left == 0)
        return 0;
    const u64 all = from.left, before = all - 1;
    Ring* r = s->end->out;
    u64 done = 0;
    while (done < before) { // in pieces, because a cursor cannot be limited to the bytes before the last
        u8 piece[256];
        const u64 n = before - done < sizeof(piece) ? before - done : sizeof(piece);
        const i64 got = from.get(piece, n);
        if (got <= 0)
            return done ? static_cast<i64>(done) : got;
        IoVec v{address(piece), static_cast<u64>(got)};
        Cursor c{&v, 1, static_cast<u64>(got), true};
        // Without a signal once a piece is sent: this call then returns what it has sent.
        const i64 sent = send_stream(s, c, done ? flags | MSG_NOSIGNAL_ : flags, passed);
        done += sent > 0 ? static_cast<u64>(sent) : 0;
        if (sent < got)
            return done ? static_cast<i64>(done) : sent;
    }
    if (const i64 result = wait_for_room(s, 1, flags, until(s->send_timeout), done); result != 0)
        return result;
    u8 byte;
    if (from.get(&byte, 1) != 1)
        return done ? static_cast<i64>(done) : -EFAULT;
    r->in_line = r->reader->socket->urgent_in_line;
    r->mark = r->taken + r->used;
    r->urgent = byte;
    r->has_mark = r->urgent_waits = true;
    if (r->in_line) {
        IoVec v{address(&byte), 1};
        Cursor c{&v, 1, 1, true};
        move_in(r, r->used, 1, c);
        ++r->used;
    }
    event_in(r->reader->socket);
    return static_cast<i64>(all);
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

void destroy_ring(Ring* r) {
    while (Passed* p = r->first) {
        r->first = p->next;
        drop_passed(p);
    }
    release(r->data, r->size);
    destroy(r);
}

void leave_ring(Ring* r, LocalEnd* e) {
    if (r->reader == e) {
        if (r->used && r->writer && !messages(e->socket)) {
            r->writer->reset = true;
            event_in(r->writer->socket);
        }
        r->reader = nullptr;
        if (r->writer)
            event_out(r->writer->socket);
    } else {
        r->writer = nullptr;
        if (r->reader)
            event_in(r->reader->socket);
    }
    if (!r->reader && !r->writer)
        destroy_ring(r);
}

} // namespace

Passed* make_passed(u32 count) {
    auto* p = static_cast<Passed*>(allocate(sizeof(Passed) + count * sizeof(File*)));
    if (p)
        p->count = count;
    return p;
}

void drop_passed(Passed* p) {
    for (u32 i = 0; i < p->count; ++i)
        if (p->files[i])
            unref(p->files[i]);
    release(p, sizeof(Passed) + p->count * sizeof(File*));
}

i64 join_ends(Socket* a, Socket* b) {
    const u32 size = messages(a) ? kMessageRingBytes : kRingBytes;
    LocalEnd* const ends[] = {make<LocalEnd>(), make<LocalEnd>()};
    Ring* const rings[] = {make_ring(size), make_ring(size)};
    if (!ends[0] || !ends[1] || !rings[0] || !rings[1]) {
        for (LocalEnd* e : ends)
            if (e)
                destroy(e);
        for (Ring* r : rings)
            if (r)
                destroy_ring(r);
        return -ENFILE;
    }
    Socket* const sockets[] = {a, b};
    for (u32 i = 0; i < 2; ++i) {
        rings[i]->writer = ends[i];
        rings[i]->reader = ends[1 - i];
        ends[i]->out = rings[i];
        ends[1 - i]->in = rings[i];
        ends[i]->socket = sockets[i];
        sockets[i]->end = ends[i];
        sockets[i]->mode = Mode::local;
        sockets[i]->connected = true;
    }
    return 0;
}

void local_close(Socket* s) {
    leave_ring(s->end->in, s->end);
    leave_ring(s->end->out, s->end);
    destroy(s->end);
    s->end = nullptr;
}

i64 local_receive(Socket* s, Cursor& to, u32 flags, u32* out_flags, Passed** passed) {
    if (flags & MSG_OOB_)
        return receive_urgent(s, to, flags, out_flags);
    return messages(s) ? receive_message(s, to, flags, out_flags, passed) : receive_stream(s, to, flags, passed);
}

i64 local_send(Socket* s, Cursor& from, u32 flags, Passed* passed) {
    const i64 result = flags & MSG_OOB_ ? send_urgent(s, from, flags, passed)
                       : messages(s)    ? send_message(s, from, flags, passed)
                                        : send_stream(s, from, flags, passed);
    if (passed)
        drop_passed(passed); // nothing was sent
    return result;
}

u32 local_poll(Socket* s) {
    const LocalEnd* e = s->end;
    u32 events = 0;
    const bool ended = !e->in->writer && s->type != SOCK_DGRAM_;
    if (e->in->used > 0 || e->read_shut || ended || e->reset)
        events |= POLLIN_ | POLLRDNORM_;
    if (e->read_shut || ended)
        events |= POLLRDHUP_;
    if (ended || (e->read_shut && e->write_shut))
        events |= POLLHUP_;
    if (e->reset)
        events |= POLLERR_;
    if (e->in->urgent_waits)
        events |= POLLPRI_;
    if (e->out->size - e->out->used >= 4096)
        events |= POLLOUT_ | POLLWRNORM_;
    return events;
}

i64 local_shutdown(Socket* s, u64 how) {
    LocalEnd* e = s->end;
    LocalEnd* other = e->out->reader;
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
    LocalEnd* const both[] = {e, other};
    for (LocalEnd* end : both)
        if (end) {
            event_in(end->socket);
            event_out(end->socket);
        }
    return 0;
}

i64 local_bytes_ready(const Socket* s) {
    const Ring* r = s->end->in;
    return messages(s) && r->used ? message_length(r) : r->used;
}

i64 local_bytes_unsent(const Socket* s) { return s->end->out->used; }
bool local_at_mark(const Socket* s) { return s->end->in->has_mark && s->end->in->taken == s->end->in->mark; }

} // namespace gk
