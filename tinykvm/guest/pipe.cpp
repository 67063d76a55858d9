#include "tinykvm/guest/pipe.hpp"

namespace gk {

void (*named_end_closed)(PipeEnd*);

namespace {

constexpr u32 kPipeBytes = 65536, kMaxBytes = 1 << 20; // Linux's default, and its limit without privilege
constexpr u32 kAtomic = 4096;                          // PIPE_BUF

void notify_readers(Pipe* p) {
    for (PipeEnd* e = p->ends; e; e = e->next)
        if (e->reads)
            event_in(e);
}
void notify_writers(Pipe* p) {
    for (PipeEnd* e = p->ends; e; e = e->next)
        if (e->writes)
            event_out(e);
}

i64 pipe_read(File* f, Cursor& to, i64) {
    Pipe* p = static_cast<PipeEnd*>(f)->pipe;
    if (to.left == 0)
        return 0;
    while (p->used == 0) {
        if (!p->writers)
            return 0;
        if (nonblocking(f))
            return -EAGAIN;
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
    u64 done = 0;
    while (p->used > 0 && to.left > 0) {
        u32 n = p->bytes - p->head;
        n = n < p->used ? n : p->used;
        const i64 moved = to.put(p->data + p->head, n < to.left ? n : to.left);
        if (moved <= 0) {
            if (done == 0)
                return moved;
            break;
        }
        p->head = (p->head + static_cast<u32>(moved)) % p->bytes;
        p->used -= static_cast<u32>(moved);
        done += static_cast<u64>(moved);
    }
    if (p->used == 0)
        p->head = 0; // so that a pipe that is always emptied dirties few pages
    notify_writers(p);
    return static_cast<i64>(done);
}

i64 pipe_write(File* f, Cursor& from, i64) {
    Pipe* p = static_cast<PipeEnd*>(f)->pipe;
    u64 done = 0;
    const bool atomic = from.left <= kAtomic;
    while (from.left > 0) {
        if (!p->readers) {
            broken_pipe();
            return done ? static_cast<i64>(done) : -EPIPE;
        }
        const u32 room = p->bytes - p->used;
        if (room == 0 || (atomic && room < from.left)) {
            if (nonblocking(f))
                return done ? static_cast<i64>(done) : -EAGAIN;
            if (wait_io(kNever) == Wake::signal)
                return done ? static_cast<i64>(done) : -ERESTARTSYS;
            continue;
        }
        const u32 at = (p->head + p->used) % p->bytes;
        u32 n = p->bytes - at;
        n = n < room ? n : room;
        const i64 moved = from.get(p->data + at, n < from.left ? n : from.left);
        if (moved <= 0)
            return done ? static_cast<i64>(done) : moved;
        p->used += static_cast<u32>(moved);
        done += static_cast<u64>(moved);
        notify_readers(p);
    }
    return static_cast<i64>(done);
}

u32 pipe_poll(File* f) {
    const auto* end = static_cast<PipeEnd*>(f);
    const Pipe* p = end->pipe;
    u32 events = 0;
    if (end->reads)
        events |= (p->used > 0 ? POLLIN_ | POLLRDNORM_ : 0u) | (!p->writers && p->writers_ever ? u32{POLLHUP_} : 0u);
    if (end->writes)
        events |= (p->bytes - p->used >= kAtomic ? POLLOUT_ | POLLWRNORM_ : 0u) | (p->readers ? 0u : u32{POLLERR_});
    return events;
}

void pipe_close(File* f) {
    auto* end = static_cast<PipeEnd*>(f);
    Pipe* p = end->pipe;
    PipeEnd** at = &p->ends;
    while (*at != end)
        at = &(*at)->next;
    *at = end->next;
    p->readers -= end->reads;
    p->writers -= end->writes;
    if (end->reads && !p->readers)
        notify_writers(p);
    if (end->writes && !p->writers)
        notify_readers(p);
    if (p->named)
        named_end_closed(end);
    else if (!p->ends)
        free_pipe(p);
    destroy(end);
}

const FileOps pipe_ops{pipe_read, pipe_write, pipe_poll, pipe_close, "pipe"};

} // namespace

Pipe* make_pipe() {
    auto* p = make<Pipe>();
    if (!p)
        return nullptr;
    p->data = static_cast<u8*>(allocate_dirty(kPipeBytes));
    p->bytes = kPipeBytes;
    if (!p->data) {
        destroy(p);
        return nullptr;
    }
    return p;
}

void free_pipe(Pipe* p) {
    release(p->data, p->bytes);
    destroy(p);
}

PipeEnd* make_end(Pipe* p, u32 flags) {
    auto* end = make<PipeEnd>();
    if (!end)
        return nullptr;
    const u32 mode = flags & O_ACCMODE_;
    end->ops = &pipe_ops;
    end->kind = Kind::pipe;
    end->flags = flags & (O_ACCMODE_ | O_NONBLOCK_);
    end->pipe = p;
    end->reads = mode != O_WRONLY_;
    end->writes = mode != 0;
    p->readers += end->reads;
    p->writers += end->writes;
    p->readers_ever += end->reads;
    p->writers_ever += end->writes;
    end->next = p->ends;
    p->ends = end;
    return end;
}

i64 set_pipe_size(Pipe* p, u64 bytes) {
    u32 size = kAtomic;
    while (size < bytes && size < kMaxBytes)
        size *= 2;
    if (bytes > kMaxBytes)
        return -EPERM;
    if (size == p->bytes)
        return size;
    if (p->used > size)
        return -EBUSY;
    u8* data = static_cast<u8*>(allocate_dirty(size));
    if (!data)
        return -ENOMEM;
    for (u32 i = 0; i < p->used; ++i)
        data[i] = p->data[(p->head + i) % p->bytes];
    release(p->data, p->bytes);
    p->data = data;
    p->bytes = size;
    p->head = 0;
    notify_writers(p);
    return size;
}

i64 pipe_bytes_ready(File* f) { return static_cast<PipeEnd*>(f)->pipe->used; }

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

i64 sys_pipe2(const Args& c) {
    const u32 flags = static_cast<u32>(c.a[1]);
    constexpr u32 kPackets = 0x4000; // O_DIRECT: accepted, but one read may return several writes
    if (flags & ~(O_NONBLOCK_ | O_CLOEXEC_ | kPackets))
        return -EINVAL;
    Pipe* pipe = make_pipe();
    if (!pipe)
        return -ENFILE;
    PipeEnd* reader = make_end(pipe, flags & O_NONBLOCK_);
    PipeEnd* writer = reader ? make_end(pipe, (flags & O_NONBLOCK_) | O_WRONLY_) : nullptr;
    if (!writer) {
        if (reader)
            unref(reader);
        else
            free_pipe(pipe);
        return -ENFILE;
    }
    return install_two(reader, writer, (flags & O_CLOEXEC_) != 0, c.a[0]);
}
i64 sys_pipe(const Args& c) {
    Args d = c;
    d.a[1] = 0;
    return sys_pipe2(d);
}

} // namespace gk
