// Objects that only carry bytes or counts between threads: pipes, socket pairs, eventfds.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

constexpr u32 kPipeBytes = 65536;
constexpr u32 kAtomic = 4096; // PIPE_BUF

// One direction: a ring of bytes between the ends that hold it.
struct Channel {
    u8* data = nullptr;
    u32 head = 0, used = 0; // bytes [head, head+used) modulo the size
    File* reader = nullptr;
    File* writer = nullptr;
};

struct PipeEnd : File {
    Channel* in = nullptr;  // what this end reads
    Channel* out = nullptr; // what it writes
    bool read_shut = false, write_shut = false;
};

Channel* make_channel() {
    Channel* c = make<Channel>();
    if (!c)
        return nullptr;
    c->data = static_cast<u8*>(allocate(kPipeBytes));
    if (!c->data) {
        destroy(c);
        return nullptr;
    }
    return c;
}

void leave_channel(Channel* c, File* end) {
    if (!c)
        return;
    if (c->reader == end) {
        c->reader = nullptr;
        if (c->writer)
            event_out(c->writer);
    }
    if (c->writer == end) {
        c->writer = nullptr;
        if (c->reader)
            event_in(c->reader);
    }
    if (!c->reader && !c->writer) {
        release(c->data, kPipeBytes);
        destroy(c);
    }
}

i64 pipe_read(File* f, Cursor& to, i64) {
    auto* end = static_cast<PipeEnd*>(f);
    Channel* c = end->in;
    if (!c)
        return -EBADF;
    if (to.left == 0)
        return 0;
    while (c->used == 0) {
        if (!c->writer || end->read_shut)
            return 0;
        if (nonblocking(f))
            return -EAGAIN;
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
    u64 done = 0;
    while (c->used > 0 && to.left > 0) {
        u32 n = kPipeBytes - c->head;
        n = n < c->used ? n : c->used;
        const i64 moved = to.put(c->data + c->head, n < to.left ? n : to.left);
        if (moved <= 0) {
            if (done == 0)
                return moved;
            break;
        }
        c->head = (c->head + static_cast<u32>(moved)) % kPipeBytes;
        c->used -= static_cast<u32>(moved);
        done += static_cast<u64>(moved);
    }
    if (c->used == 0)
        c->head = 0; // keeps touching the same pages
    if (c->writer)
        event_out(c->writer);
    return static_cast<i64>(done);
}

i64 pipe_write(File* f, Cursor& from, i64) {
    auto* end = static_cast<PipeEnd*>(f);
    Channel* c = end->out;
    if (!c)
        return -EBADF;
    u64 done = 0;
    const bool atomic = f->kind == Kind::pipe && from.left <= kAtomic;
    while (from.left > 0) {
        if (!c->reader || end->write_shut) {
            if (done)
                break;
            send_signal(current, SIGPIPE_, {SIGPIPE_, 0, 0, 0, 0, 0});
            return -EPIPE;
        }
        const u32 room = kPipeBytes - c->used;
        if (room == 0 || (atomic && room < from.left)) {
            if (nonblocking(f))
                return done ? static_cast<i64>(done) : -EAGAIN;
            if (wait_io(kNever) == Wake::signal)
                return done ? static_cast<i64>(done) : -ERESTARTSYS;
            continue;
        }
        const u32 at = (c->head + c->used) % kPipeBytes;
        u32 n = kPipeBytes - at;
        n = n < room ? n : room;
        const i64 moved = from.get(c->data + at, n < from.left ? n : from.left);
        if (moved <= 0)
            return done ? static_cast<i64>(done) : moved;
        c->used += static_cast<u32>(moved);
        done += static_cast<u64>(moved);
        event_in(c->reader);
    }
    return static_cast<i64>(done);
}

u32 pipe_poll(File* f) {
    auto* end = static_cast<PipeEnd*>(f);
    u32 events = 0;
    if (end->in) {
        if (end->in->used > 0)
            events |= POLLIN_ | POLLRDNORM_;
        if (!end->in->writer || end->read_shut)
            events |= f->kind == Kind::pair ? POLLIN_ | POLLRDNORM_ | POLLRDHUP_ | (end->in->writer ? 0u : u32{POLLHUP_}) : u32{POLLHUP_};
    }
    if (end->out) {
        if (!end->out->reader)
            events |= f->kind == Kind::pair ? 0u : u32{POLLERR_};
        if (kPipeBytes - end->out->used >= kAtomic)
            events |= POLLOUT_ | POLLWRNORM_;
    }
    return events;
}

void pipe_close(File* f) {
    auto* end = static_cast<PipeEnd*>(f);
    leave_channel(end->in, f);
    leave_channel(end->out, f);
    destroy(end);
}

const FileOps pipe_ops{pipe_read, pipe_write, pipe_poll, pipe_close, "pipe"};

PipeEnd* make_end(Kind kind, u32 flags) {
    PipeEnd* end = make<PipeEnd>();
    if (end) {
        end->ops = &pipe_ops;
        end->kind = kind;
        end->flags = flags;
    }
    return end;
}

i64 install_two(File* a, File* b, bool cloexec, u64 to) {
    const i32 first = install(a, cloexec);
    const i32 second = first < 0 ? first : install(b, cloexec);
    if (second < 0) {
        if (first >= 0)
            close_fd(first);
        else
            unref(a);
        unref(b);
        return second;
    }
    const i32 out[2] = {first, second};
    if (!copy_to_user(to, out, sizeof(out))) {
        close_fd(first);
        close_fd(second);
        return -EFAULT;
    }
    return 0;
}

struct EventFile : File {
    u64 count = 0;
    bool semaphore = false;
};

i64 event_read(File* f, Cursor& to, i64) {
    auto* e = static_cast<EventFile*>(f);
    if (to.left < 8)
        return -EINVAL;
    while (e->count == 0) {
        if (nonblocking(f))
            return -EAGAIN;
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
    const u64 value = e->semaphore ? 1 : e->count;
    const i64 n = to.put(&value, 8);
    if (n == 8) {
        e->count -= value;
        event_out(f);
    }
    return n;
}

i64 event_write(File* f, Cursor& from, i64) {
    auto* e = static_cast<EventFile*>(f);
    u64 value;
    if (from.left < 8)
        return -EINVAL;
    if (from.get(&value, 8) != 8)
        return -EFAULT;
    if (value == ~u64{0})
        return -EINVAL;
    while (e->count > ~u64{0} - 1 - value) {
        if (nonblocking(f))
            return -EAGAIN;
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
    e->count += value;
    event_in(f);
    return 8;
}

u32 event_poll(File* f) {
    auto* e = static_cast<EventFile*>(f);
    return (e->count ? POLLIN_ | POLLRDNORM_ : 0u) | (e->count < ~u64{0} - 1 ? POLLOUT_ | POLLWRNORM_ : 0u);
}
void event_close(File* f) { destroy(static_cast<EventFile*>(f)); }
const FileOps event_ops{event_read, event_write, event_poll, event_close, "anon_inode:[eventfd]"};

} // namespace

i64 pair_shutdown(File* f, u64 how) {
    auto* end = static_cast<PipeEnd*>(f);
    if (how > 2)
        return -EINVAL;
    if (how != 1)
        end->read_shut = true;
    if (how != 0) {
        end->write_shut = true;
        if (end->out && end->out->reader)
            static_cast<PipeEnd*>(end->out->reader)->read_shut = true;
    }
    if (end->in && end->in->writer)
        event_out(end->in->writer);
    if (end->out && end->out->reader)
        event_in(end->out->reader);
    notify_io();
    return 0;
}

i64 pipe_bytes_ready(File* f) {
    auto* end = static_cast<PipeEnd*>(f);
    return end->in ? end->in->used : 0;
}

i64 sys_pipe2(const Args& c) {
    const u32 flags = static_cast<u32>(c.a[1]);
    if (flags & ~(O_NONBLOCK_ | O_CLOEXEC_ | 0x4000u))
        return -EINVAL;
    PipeEnd* reader = make_end(Kind::pipe, flags & O_NONBLOCK_);
    PipeEnd* writer = make_end(Kind::pipe, (flags & O_NONBLOCK_) | O_WRONLY_);
    Channel* channel = make_channel();
    if (!reader || !writer || !channel)
        return -ENFILE;
    channel->reader = reader;
    channel->writer = writer;
    reader->in = channel;
    writer->out = channel;
    return install_two(reader, writer, (flags & O_CLOEXEC_) != 0, c.a[0]);
}
i64 sys_pipe(const Args& c) {
    Args d = c;
    d.a[1] = 0;
    return sys_pipe2(d);
}

i64 sys_socketpair(const Args& c) {
    const u32 type = static_cast<u32>(c.a[1]);
    if (c.a[0] != 1)
        return -EAFNOSUPPORT;
    if ((type & 0xf) != 1 && (type & 0xf) != 5 && (type & 0xf) != 2)
        return -EPROTONOSUPPORT;
    if ((type & 0xf) != 1) // message boundaries are not kept by a ring of bytes
        return -EPROTONOSUPPORT;
    const u32 flags = O_RDWR_ | (type & O_NONBLOCK_);
    PipeEnd* a = make_end(Kind::pair, flags);
    PipeEnd* b = make_end(Kind::pair, flags);
    Channel* there = make_channel();
    Channel* back = make_channel();
    if (!a || !b || !there || !back)
        return -ENFILE;
    there->writer = a;
    there->reader = b;
    back->writer = b;
    back->reader = a;
    a->out = there;
    a->in = back;
    b->in = there;
    b->out = back;
    return install_two(a, b, (type & O_CLOEXEC_) != 0, c.a[3]);
}

i64 sys_eventfd2(const Args& c) {
    const u32 flags = static_cast<u32>(c.a[1]);
    if (flags & ~(O_NONBLOCK_ | O_CLOEXEC_ | 1u))
        return -EINVAL;
    EventFile* e = make<EventFile>();
    if (!e)
        return -ENOMEM;
    e->ops = &event_ops;
    e->kind = Kind::event;
    e->flags = O_RDWR_ | (flags & O_NONBLOCK_);
    e->count = c.a[0] & 0xffffffff;
    e->semaphore = (flags & 1) != 0;
    return install_or_release(e, (flags & O_CLOEXEC_) != 0);
}
i64 sys_eventfd(const Args& c) {
    Args d = c;
    d.a[1] = 0;
    return sys_eventfd2(d);
}

} // namespace gk
