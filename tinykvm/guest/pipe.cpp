// Pipes: a ring of bytes between two ends.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

constexpr u32 kPipeBytes = 65536;
constexpr u32 kAtomic = 4096; // PIPE_BUF

struct PipeEnd;
struct Pipe {
    u8* data = nullptr;
    u32 head = 0, used = 0; // bytes [head, head+used) modulo the size
    PipeEnd* reader = nullptr;
    PipeEnd* writer = nullptr;
};
struct PipeEnd : File {
    Pipe* pipe = nullptr;
};

i64 pipe_read(File* f, Cursor& to, i64) {
    Pipe* p = static_cast<PipeEnd*>(f)->pipe;
    if (to.left == 0)
        return 0;
    while (p->used == 0) {
        if (!p->writer)
            return 0;
        if (nonblocking(f))
            return -EAGAIN;
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
    u64 done = 0;
    while (p->used > 0 && to.left > 0) {
        u32 n = kPipeBytes - p->head;
        n = n < p->used ? n : p->used;
        const i64 moved = to.put(p->data + p->head, n < to.left ? n : to.left);
        if (moved <= 0) {
            if (done == 0)
                return moved;
            break;
        }
        p->head = (p->head + static_cast<u32>(moved)) % kPipeBytes;
        p->used -= static_cast<u32>(moved);
        done += static_cast<u64>(moved);
    }
    if (p->used == 0)
        p->head = 0; // keeps touching the same pages
    if (p->writer)
        event_out(p->writer);
    return static_cast<i64>(done);
}

i64 pipe_write(File* f, Cursor& from, i64) {
    Pipe* p = static_cast<PipeEnd*>(f)->pipe;
    u64 done = 0;
    const bool atomic = from.left <= kAtomic;
    while (from.left > 0) {
        if (!p->reader) {
            broken_pipe();
            return done ? static_cast<i64>(done) : -EPIPE;
        }
        const u32 room = kPipeBytes - p->used;
        if (room == 0 || (atomic && room < from.left)) {
            if (nonblocking(f))
                return done ? static_cast<i64>(done) : -EAGAIN;
            if (wait_io(kNever) == Wake::signal)
                return done ? static_cast<i64>(done) : -ERESTARTSYS;
            continue;
        }
        const u32 at = (p->head + p->used) % kPipeBytes;
        u32 n = kPipeBytes - at;
        n = n < room ? n : room;
        const i64 moved = from.get(p->data + at, n < from.left ? n : from.left);
        if (moved <= 0)
            return done ? static_cast<i64>(done) : moved;
        p->used += static_cast<u32>(moved);
        done += static_cast<u64>(moved);
        event_in(p->reader);
    }
    return static_cast<i64>(done);
}

u32 pipe_poll(File* f) {
    Pipe* p = static_cast<PipeEnd*>(f)->pipe;
    if (p->reader == f)
        return (p->used > 0 ? POLLIN_ | POLLRDNORM_ : 0u) | (p->writer ? 0u : u32{POLLHUP_});
    return (kPipeBytes - p->used >= kAtomic ? POLLOUT_ | POLLWRNORM_ : 0u) | (p->reader ? 0u : u32{POLLERR_});
}

void release_pipe(Pipe* p) {
    release(p->data, kPipeBytes);
    destroy(p);
}

void pipe_close(File* f) {
    auto* end = static_cast<PipeEnd*>(f);
    Pipe* p = end->pipe;
    if (p->reader == end) {
        p->reader = nullptr;
        if (p->writer)
            event_out(p->writer);
    } else {
        p->writer = nullptr;
        if (p->reader)
            event_in(p->reader);
    }
    if (!p->reader && !p->writer)
        release_pipe(p);
    destroy(end);
}

const FileOps pipe_ops{pipe_read, pipe_write, pipe_poll, pipe_close, "pipe"};

} // namespace

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
    constexpr u32 kPackets = 0x4000; // O_DIRECT: accepted, but writes may be read together
    if (flags & ~(O_NONBLOCK_ | O_CLOEXEC_ | kPackets))
        return -EINVAL;
    auto* reader = make<PipeEnd>();
    auto* writer = make<PipeEnd>();
    auto* pipe = make<Pipe>();
    u8* data = static_cast<u8*>(allocate_dirty(kPipeBytes));
    if (!reader || !writer || !pipe || !data) {
        if (reader)
            destroy(reader);
        if (writer)
            destroy(writer);
        if (pipe)
            destroy(pipe);
        if (data)
            release(data, kPipeBytes);
        return -ENFILE;
    }
    pipe->data = data;
    pipe->reader = reader;
    pipe->writer = writer;
    PipeEnd* const both[] = {reader, writer};
    for (PipeEnd* end : both) {
        end->ops = &pipe_ops;
        end->kind = Kind::pipe;
        end->flags = (flags & O_NONBLOCK_) | (end == writer ? O_WRONLY_ : 0u);
        end->pipe = pipe;
    }
    return install_two(reader, writer, (flags & O_CLOEXEC_) != 0, c.a[0]);
}
i64 sys_pipe(const Args& c) {
    Args d = c;
    d.a[1] = 0;
    return sys_pipe2(d);
}

} // namespace gk
