// The fd table, and operations common to all files.
#include "tinykvm/guest/own_files.hpp"
#include "tinykvm/guest/pipe.hpp"
#include "tinykvm/guest/socket.hpp"
#include "tinykvm/guest/transfer.hpp"

namespace gk {
namespace {

Descriptor* table;
i32 table_size;
i32 soft_limit; // RLIMIT_NOFILE

} // namespace

i32 file_limit() { return soft_limit; }
void set_file_limit(u64 limit) {
    soft_limit = limit < static_cast<u64>(table_size) ? static_cast<i32>(limit) : table_size;
}

void init_files() {
    init_time();
    init_paths();
    table_size = soft_limit = static_cast<i32>(gk_shared_page.max_files);
    table = static_cast<Descriptor*>(allocate(sizeof(Descriptor) * static_cast<u64>(table_size)));
    if (!table)
        fatal("no room for the fd table");
    const u32 flags[3] = {O_RDWR_, O_RDWR_, O_RDWR_};
    for (i32 i = 0; i < 3; ++i) {
        // The host knows what stdin, stdout and stderr are.
        abi::OpenReply reply{};
        u8 stat[144] = {};
        host_call(5 /*fstat*/, static_cast<u64>(i), address(stat));
        memcpy(&reply.mode, stat + 24, 4);
        // Always streams: the parent process shares their offset.
        File* f = make_host_file(i, flags[i], false, reply.mode);
        install(f, false);
    }
}

File* file_of(i32 fd) { return fd >= 0 && fd < table_size ? table[fd].file : nullptr; }

i32 install(File* f, bool cloexec, i32 lowest) {
    if (lowest < 0 || (lowest > 0 && lowest >= soft_limit))
        return -EINVAL;
    for (i32 fd = lowest; fd < soft_limit; ++fd)
        if (!table[fd].file) {
            table[fd] = {f, cloexec};
            return fd;
        }
    return -EMFILE;
}

i32 install_or_release(File* f, bool cloexec) {
    const i32 fd = install(f, cloexec);
    if (fd < 0)
        unref(f);
    return fd;
}

void ref(File* f) { ++f->refs; }

void unref(File* f) {
    if (--f->refs != 0)
        return;
    close_all_epoll_items(f);
    f->ops->close(f);
}

void hold_for_parent(bool listeners) {
    for (i32 fd = 0; fd < table_size; ++fd) {
        File* f = table[fd].file;
        const auto* s = f && f->kind == Kind::socket ? static_cast<Socket*>(f) : nullptr;
        if (f && (f->kind == Kind::pipe || (s && (s->end || (listeners && s->mode == Mode::listening)))))
            ref(f);
    }
}

void event_in(File* f) {
    ++f->in_events;
    pass_on_event(f);
    notify_io();
}
void event_out(File* f) {
    ++f->out_events;
    pass_on_event(f);
    notify_io();
}

i64 read_file(File* f, Cursor& c, i64 offset) {
    if ((f->flags & O_WRONLY_) || (f->flags & O_PATH_)) // access mode 3 allows neither reading nor writing
        return -EBADF;
    return f->ops->read(f, c, offset);
}
i64 write_file(File* f, Cursor& c, i64 offset) {
    if ((f->flags & O_ACCMODE_) == 0 || (f->flags & O_ACCMODE_) == O_ACCMODE_ || (f->flags & O_PATH_))
        return -EBADF;
    return f->ops->write(f, c, offset);
}
u32 poll_file(File* f) { return f->ops->poll(f); }

i64 close_fd(i32 fd) {
    File* f = file_of(fd);
    if (!f)
        return -EBADF;
    table[fd] = {nullptr, false};
    unref(f);
    return 0;
}

void close_all_fds() {
    for (i32 fd = 0; fd < table_size; ++fd)
        close_fd(fd);
}

namespace {

using Move = i64 (*)(File*, Cursor&, i64);

i64 move_one(const Args& c, Move move, i64 offset) {
    Hold f(c.a[0]);
    if (!f)
        return -EBADF;
    if (static_cast<i64>(c.a[2]) < 0)
        return -EINVAL;
    if (c.a[2] && !user_ok(c.a[1], c.a[2]))
        return -EFAULT;
    IoVec one{c.a[1], c.a[2] > kMaxMoved ? kMaxMoved : c.a[2]};
    Cursor cursor{&one, 1, one.length};
    return move(f.get(), cursor, offset);
}

i64 move_many(const Args& c, Move move, i64 offset) {
    Hold f(c.a[0]);
    if (!f)
        return -EBADF;
    Vectors vectors;
    if (const i64 error = vectors.take(c.a[1], c.a[2]); error < 0)
        return error;
    Cursor cursor = vectors.cursor();
    return move(f.get(), cursor, offset);
}

i64 checked_offset(u64 fd, i64 offset) {
    if (offset < 0)
        return -EINVAL;
    File* f = file_of(static_cast<i32>(fd));
    if (!f)
        return -EBADF;
    if (f->kind == Kind::own)
        return 0;
    const auto* h = f->kind == Kind::host ? static_cast<const HostFile*>(f) : nullptr;
    const bool device = h && h->handle > abi::kHandleStderr &&
                        (h->mode & 0170000) == 0020000; // /dev/null and the like ignore the offset
    if (!h || (!h->seekable && !device))
        return -ESPIPE;
    return 0;
}

} // namespace

i64 sys_read(const Args& c) { return move_one(c, read_file, -1); }
i64 sys_write(const Args& c) { return move_one(c, write_file, -1); }
i64 sys_readv(const Args& c) { return move_many(c, read_file, -1); }
i64 sys_writev(const Args& c) { return move_many(c, write_file, -1); }
i64 sys_pread64(const Args& c) {
    const i64 error = checked_offset(c.a[0], static_cast<i64>(c.a[3]));
    return error < 0 ? error : move_one(c, read_file, static_cast<i64>(c.a[3]));
}
i64 sys_pwrite64(const Args& c) {
    const i64 error = checked_offset(c.a[0], static_cast<i64>(c.a[3]));
    return error < 0 ? error : move_one(c, write_file, static_cast<i64>(c.a[3]));
}
i64 sys_preadv(const Args& c) {
    const i64 error = checked_offset(c.a[0], static_cast<i64>(c.a[3]));
    return error < 0 ? error : move_many(c, read_file, static_cast<i64>(c.a[3]));
}
i64 sys_pwritev(const Args& c) {
    const i64 error = checked_offset(c.a[0], static_cast<i64>(c.a[3]));
    return error < 0 ? error : move_many(c, write_file, static_cast<i64>(c.a[3]));
}

// RWF_* flags have no effect here, because nothing is cached. Unknown flags must be refused.
i64 sys_preadv2(const Args& c) {
    return static_cast<u32>(c.a[5]) & ~0xfu ? -EOPNOTSUPP : c.a[3] == ~u64{0} ? sys_readv(c) : sys_preadv(c);
}
i64 sys_pwritev2(const Args& c) {
    return static_cast<u32>(c.a[5]) & ~0xfu ? -EOPNOTSUPP : c.a[3] == ~u64{0} ? sys_writev(c) : sys_pwritev(c);
}

i64 sys_close(const Args& c) { return close_fd(static_cast<i32>(c.a[0])); }

i64 sys_close_range(const Args& c) {
    const u32 first = static_cast<u32>(c.a[0]), last = static_cast<u32>(c.a[1]), flags = static_cast<u32>(c.a[2]);
    if (first > last || (flags & ~6u))
        return -EINVAL;
    for (u32 fd = first; fd <= last && fd < static_cast<u32>(table_size); ++fd) {
        if (!table[fd].file)
            continue;
        if (flags & 4) // CLOSE_RANGE_CLOEXEC
            table[fd].cloexec = true;
        else
            close_fd(static_cast<i32>(fd));
    }
    return 0;
}

i64 sys_dup(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    const i32 fd = install(f, false);
    if (fd >= 0)
        ref(f);
    return fd;
}

i64 sys_dup3(const Args& c) {
    const i32 from = static_cast<i32>(c.a[0]), to = static_cast<i32>(c.a[1]);
    if (from == to || (static_cast<u32>(c.a[2]) & ~O_CLOEXEC_))
        return -EINVAL;
    File* f = file_of(from);
    if (!f || to < 0 || to >= soft_limit)
        return -EBADF;
    ref(f);
    close_fd(to);
    table[to] = {f, (c.a[2] & O_CLOEXEC_) != 0};
    return to;
}

i64 sys_dup2(const Args& c) {
    if (static_cast<i32>(c.a[0]) == static_cast<i32>(c.a[1]))
        return file_of(static_cast<i32>(c.a[0])) ? static_cast<i32>(c.a[0]) : -EBADF;
    Args d = c;
    d.a[2] = 0;
    return sys_dup3(d);
}

i64 sys_fcntl(const Args& c) {
    const i32 fd = static_cast<i32>(c.a[0]);
    File* f = file_of(fd);
    if (!f)
        return -EBADF;
    const u32 command = static_cast<u32>(c.a[1]);
    const bool path_only = (f->flags & O_PATH_) != 0;
    switch (command) {
    case 0:      // F_DUPFD
    case 1030: { // F_DUPFD_CLOEXEC
        const i32 fresh = install(f, command == 1030, static_cast<i32>(c.a[2]));
        if (fresh >= 0)
            ref(f);
        return fresh;
    }
    case 1: return table[fd].cloexec ? 1 : 0; // F_GETFD
    case 2: table[fd].cloexec = (c.a[2] & 1) != 0; return 0;
    case 3: return f->flags; // F_GETFL
    case 4: {
        if (path_only)
            return -EBADF;
        const u32 fresh = static_cast<u32>(c.a[2]);
        const i32 handle = handle_of(f);
        if (handle >= 0 && ((f->flags ^ fresh) & O_APPEND_))
            if (const i64 error = host_call(72, static_cast<u64>(handle), 4, fresh & O_APPEND_); error < 0)
                return error;
        constexpr u32 kDirect = 0x4000, kNoAtime = 0x40000;
        const u32 changeable = O_NONBLOCK_ | O_APPEND_ | (f->kind == Kind::own ? kDirect | kNoAtime : 0u);
        f->flags = (f->flags & ~changeable) | (fresh & changeable);
        return 0;
    }
    case 8: // F_SETOWN: no SIGIO is ever sent
    case 9:
    case 10: // F_SETSIG
    case 11: return path_only ? -EBADF : 0;
    case 1031: // F_SETPIPE_SZ: the size may be rounded up
    case 1032:
        if (PipeEnd* end = pipe_end(f))
            return command == 1031 ? set_pipe_size(end->pipe, c.a[2] & 0xffffffff) : i64{end->pipe->bytes};
        return -EBADF;
    case 1033: // seals
    case 1034: {
        const i32 handle = handle_of(f);
        return handle >= 0 ? host_call(72, static_cast<u64>(handle), command, c.a[2]) : -EINVAL;
    }
    case 5:
    case 6:
    case 7:
    case 36:
    case 37:
    case 38: return path_only ? -EBADF : record_lock(f, command, c.a[2]);
    default: return path_only ? -EBADF : -EINVAL;
    }
}

} // namespace gk
