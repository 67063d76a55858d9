// Files that live on the host, and the calls that name paths. The fd table and offsets stay in here; the host sees handles.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

enum Nr : u32 {
    kFstat = 5, kLseek = 8, kIoctl = 16, kAccess = 21, kFcntl = 72, kFlock = 73, kFsync = 74, kFdatasync = 75, kFtruncate = 77,
    kGetdents64 = 217, kOpenat = 257, kNewfstatat = 262, kPreadv = 295, kPwritev = 296,
};
constexpr i32 kAtCwd = -100;

constexpr i32 cwd_handle = abi::kHandleCwd; // chdir(2) puts another folder behind it

bool stream(const HostFile* f) { return !f->seekable && (f->mode & 0170000) != 0040000; }

// Before a call on a stream that would block the host: waits here instead.
i64 await_handle(HostFile* f, u32 events) {
    while (!(poll_handle(f->handle, events) & (events | POLLERR_ | POLLHUP_))) {
        if (nonblocking(f))
            return -EAGAIN;
        add_interest(f->handle, events);
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
    return 0;
}

i64 host_move(HostFile* f, Cursor& c, i64 offset, u32 nr, u32 events) {
    if (stream(f) && (f->mode & 0170000) != 0020000 && f->handle > 2) { // pipes and the like; devices and stdio do not wait
        if (const i64 error = await_handle(f, events); error < 0)
            return error;
    } else if (nr == kPreadv && f->handle == abi::kHandleStdin && stream(f)) {
        if (const i64 error = await_handle(f, events); error < 0)
            return error;
    }
    const u64 at = !f->seekable ? ~u64{0} : offset >= 0 ? static_cast<u64>(offset) : f->offset;
    i64 n;
    if (nr == kPwritev && f->seekable && offset < 0 && (f->flags & O_APPEND_)) {
        u8 stat[144];
        host_call(kFstat, static_cast<u64>(f->handle), address(stat));
        memcpy(&f->offset, stat + 48, 8);
        n = host_call(nr, static_cast<u64>(f->handle), address(c.vec), c.count, f->offset);
    } else {
        n = host_call(nr, static_cast<u64>(f->handle), address(c.vec), c.count, at);
    }
    if (n > 0 && f->seekable && offset < 0)
        f->offset += static_cast<u64>(n);
    return n;
}

i64 host_read(File* f, Cursor& c, i64 offset) { return host_move(static_cast<HostFile*>(f), c, offset, kPreadv, POLLIN_); }
i64 host_write(File* f, Cursor& c, i64 offset) { return host_move(static_cast<HostFile*>(f), c, offset, kPwritev, POLLOUT_); }
u32 host_poll(File* f) {
    auto* h = static_cast<HostFile*>(f);
    if (!stream(h))
        return POLLIN_ | POLLOUT_ | POLLRDNORM_ | POLLWRNORM_;
    return poll_handle(h->handle, POLLIN_ | POLLOUT_);
}
void host_close(File* f) {
    auto* h = static_cast<HostFile*>(f);
    host_call(abi::kCloseHandle, static_cast<u64>(h->handle));
    destroy(h);
}
const FileOps host_ops{host_read, host_write, host_poll, host_close, "file"};

bool directory_handle(u64 fd, i32& handle) {
    if (static_cast<i32>(fd) == kAtCwd) {
        handle = cwd_handle;
        return true;
    }
    File* f = file_of(static_cast<i32>(fd));
    handle = f ? handle_of(f) : -1;
    return handle >= 0;
}

i64 open_at(u64 dir, u64 path, u64 flags, u64 mode) {
    i32 handle;
    char first = 0;
    if (!get_user(first, path))
        return -EFAULT;
    if (!directory_handle(dir, handle)) {
        if (first != '/')
            return -EBADF;
        handle = cwd_handle;
    }
    abi::OpenReply reply{};
    const i64 opened = host_call(kOpenat, static_cast<u64>(handle), path, flags & ~u64{O_NONBLOCK_}, mode, address(&reply));
    if (opened < 0)
        return opened;
    HostFile* f = make_host_file(static_cast<i32>(opened), static_cast<u32>(flags) & ~(O_CLOEXEC_ | O_CREAT_ | 0x80u | 0x100u | 0x200u),
                                 reply.seekable != 0, reply.mode);
    if (!f) {
        host_call(abi::kCloseHandle, static_cast<u64>(opened));
        return -ENOMEM;
    }
    return install_or_release(f, (flags & O_CLOEXEC_) != 0);
}

// Calls that Linux has with and without a directory: all become the form with one.
i64 path_call(u32 nr, u64 dir, u64 a1, u64 a2 = 0, u64 a3 = 0, u64 a4 = 0) {
    i32 handle;
    if (!directory_handle(dir, handle)) {
        char first = 0;
        if (a1 && !get_user(first, a1))
            return -EFAULT;
        if (first != '/')
            return file_of(static_cast<i32>(dir)) ? -ENOTDIR : -EBADF;
        handle = cwd_handle;
    }
    return host_call(nr, static_cast<u64>(static_cast<i64>(handle)), a1, a2, a3, a4);
}

constexpr u64 kCwd = static_cast<u64>(static_cast<i64>(kAtCwd));

// fstat of what has no host file behind it.
i64 stat_own(File* f, u64 to) {
    struct { u64 dev, ino, nlink; u32 mode, uid, gid, pad; u64 rdev; i64 size, block_size, blocks; u64 times[6]; i64 unused[3]; } s{};
    static_assert(sizeof(s) == 144);
    s.dev = 0xd;
    s.ino = address(f) >> 5 & 0xffffffff;
    s.nlink = 1;
    s.mode = f->kind == Kind::pipe ? 0010600 : f->kind == Kind::socket || f->kind == Kind::pair ? 0140777 : 0600;
    s.uid = gk_shared_page.uid;
    s.gid = gk_shared_page.gid;
    s.block_size = 4096;
    return put_user(to, s) ? 0 : -EFAULT;
}

} // namespace

HostFile* make_host_file(i32 handle, u32 flags, bool seekable, u32 mode) {
    HostFile* f = make<HostFile>();
    if (!f)
        return nullptr;
    f->ops = &host_ops;
    f->kind = Kind::host;
    f->handle = handle;
    f->flags = flags;
    f->seekable = seekable;
    f->mode = mode;
    return f;
}

u32 poll_handle(i32 handle, u32 events) {
    abi::Wait& wait = gk_shared_page.wait;
    wait.handle_count = 1;
    wait.handles[0] = {handle, static_cast<std::int16_t>(events), 0};
    wait.listeners = 0;
    wait.deadline_ns = 0;
    wait.runnable = 1;
    host_call(abi::kPoll);
    conns_updated();
    return static_cast<u32>(static_cast<u16>(wait.handles[0].revents));
}

void add_interest(i32 handle, u32 events) {
    Thread* t = current;
    for (u32 i = 0; i < t->interest_count; ++i)
        if (t->interest[i].handle == handle) {
            t->interest[i].events |= events;
            return;
        }
    if (t->interest_count < sizeof(t->interest) / sizeof(t->interest[0]))
        t->interest[t->interest_count++] = {handle, events};
}
void clear_interest() { current->interest_count = 0; }

i64 write_kernel(File* f, const void* from, u64 bytes) {
    const IoVec one{address(from), bytes};
    Cursor c{&one, 1, bytes, true};
    return write_file(f, c, -1);
}

i64 sys_open(const Args& c) { return open_at(kCwd, c.a[0], c.a[1], c.a[2]); }
i64 sys_creat(const Args& c) { return open_at(kCwd, c.a[0], O_CREAT_ | O_WRONLY_ | 0x200, c.a[1]); }
i64 sys_openat(const Args& c) { return open_at(c.a[0], c.a[1], c.a[2], c.a[3]); }
i64 sys_openat2(const Args& c) {
    struct { u64 flags, mode, resolve; } how;
    if (c.a[3] < sizeof(how) || !get_user(how, c.a[2]))
        return c.a[3] < sizeof(how) ? -EINVAL : -EFAULT;
    if (how.resolve) // paths are resolved by the host's own rules
        return -EINVAL;
    return open_at(c.a[0], c.a[1], how.flags, how.mode);
}

i64 sys_fstat(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    const i32 handle = handle_of(f);
    return handle >= 0 ? host_call(kFstat, static_cast<u64>(handle), c.a[1]) : stat_own(f, c.a[1]);
}

i64 sys_newfstatat(const Args& c) {
    constexpr u64 kEmptyPath = 0x1000;
    if (c.a[3] & kEmptyPath) {
        char first = 1;
        if (c.a[1] && !get_user(first, c.a[1]))
            return -EFAULT;
        if ((!c.a[1] || first == 0) && static_cast<i32>(c.a[0]) != kAtCwd) {
            Args f = c;
            f.a[1] = c.a[2];
            return sys_fstat(f);
        }
    }
    return path_call(kNewfstatat, c.a[0], c.a[1], c.a[2], c.a[3]);
}
i64 sys_stat(const Args& c) { return path_call(kNewfstatat, kCwd, c.a[0], c.a[1], 0); }
i64 sys_lstat(const Args& c) { return path_call(kNewfstatat, kCwd, c.a[0], c.a[1], 0x100); }
i64 sys_statx(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    char first = 1;
    if (c.a[1] && !get_user(first, c.a[1]))
        return -EFAULT;
    if ((c.a[2] & 0x1000) && (!c.a[1] || first == 0) && f && handle_of(f) < 0) {
        // A pipe or socket of ours: what statx(2) says of it is little.
        u8 out[256] = {};
        const u32 mask = 0x7ff, block = 4096;
        const u16 mode = f->kind == Kind::pipe ? 0010600 : f->kind == Kind::socket || f->kind == Kind::pair ? 0140777 : 0600;
        memcpy(out, &mask, 4);
        memcpy(out + 4, &block, 4);
        memcpy(out + 28, &mode, 2);
        return copy_to_user(c.a[4], out, sizeof(out)) ? 0 : -EFAULT;
    }
    return path_call(332, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]);
}
i64 sys_access(const Args& c) { return path_call(269, kCwd, c.a[0], c.a[1]); }
i64 sys_readlink(const Args& c) { return path_call(267, kCwd, c.a[0], c.a[1], c.a[2]); }
i64 sys_mkdir(const Args& c) { return path_call(258, kCwd, c.a[0], c.a[1]); }
i64 sys_rmdir(const Args& c) { return path_call(263, kCwd, c.a[0], 0x200); }
i64 sys_unlink(const Args& c) { return path_call(263, kCwd, c.a[0], 0); }
i64 sys_chmod(const Args& c) { return path_call(268, kCwd, c.a[0], c.a[1]); }
i64 sys_chown(const Args& c) { return path_call(260, kCwd, c.a[0], c.a[1], c.a[2], 0); }
i64 sys_lchown(const Args& c) { return path_call(260, kCwd, c.a[0], c.a[1], c.a[2], 0x100); }

namespace {
i64 two_paths(u32 nr, u64 d1, u64 p1, u64 d2, u64 p2, u64 flags) {
    i32 h1, h2;
    if (!directory_handle(d1, h1))
        h1 = cwd_handle;
    if (!directory_handle(d2, h2))
        h2 = cwd_handle;
    return host_call(nr, static_cast<u64>(h1), p1, static_cast<u64>(h2), p2, flags);
}
} // namespace
i64 sys_rename(const Args& c) { return two_paths(316, kCwd, c.a[0], kCwd, c.a[1], 0); }
i64 sys_renameat(const Args& c) { return two_paths(316, c.a[0], c.a[1], c.a[2], c.a[3], 0); }
i64 sys_renameat2(const Args& c) { return two_paths(316, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]); }
i64 sys_link(const Args& c) { return two_paths(265, kCwd, c.a[0], kCwd, c.a[1], 0); }
i64 sys_linkat(const Args& c) { return two_paths(265, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]); }
i64 sys_symlink(const Args& c) { return host_call(266, c.a[0], static_cast<u64>(cwd_handle), c.a[1]); }
i64 sys_symlinkat(const Args& c) {
    i32 handle;
    if (!directory_handle(c.a[1], handle))
        handle = cwd_handle;
    return host_call(266, c.a[0], static_cast<u64>(handle), c.a[2]);
}

// Calls whose first argument is a directory and the rest is as the program gave it.
i64 sys_path_call(const Args& c) { return path_call(static_cast<u32>(c.regs->orig_rax), c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]); }
// Calls on a path that go to the host unchanged.
i64 sys_host_call(const Args& c) {
    return host_call(static_cast<u32>(c.regs->orig_rax), c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5]);
}
// Calls whose first argument is a file of the host.
i64 sys_handle_call(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    const i32 handle = handle_of(f);
    if (handle < 0)
        return -EINVAL;
    return host_call(static_cast<u32>(c.regs->orig_rax), static_cast<u64>(handle), c.a[1], c.a[2], c.a[3], c.a[4], c.a[5]);
}

i64 sys_lseek(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    if (f->kind != Kind::host)
        return -ESPIPE;
    auto* h = static_cast<HostFile*>(f);
    const bool is_directory = (h->mode & 0170000) == 0040000;
    if (!h->seekable && !is_directory)
        return (h->mode & 0170000) == 0020000 ? 0 : -ESPIPE;
    i64 base = 0;
    switch (c.a[2]) {
    case 0: break;
    case 1: base = static_cast<i64>(h->offset); break;
    case 2: {
        u8 stat[144];
        const i64 error = host_call(kFstat, static_cast<u64>(h->handle), address(stat));
        if (error < 0)
            return error;
        memcpy(&base, stat + 48, 8);
        break;
    }
    case 3: // SEEK_DATA, SEEK_HOLE: the host knows
    case 4: {
        const i64 at = host_call(kLseek, static_cast<u64>(h->handle), c.a[1], c.a[2]);
        if (at >= 0)
            h->offset = static_cast<u64>(at);
        return at;
    }
    default: return -EINVAL;
    }
    i64 at;
    if (__builtin_add_overflow(base, static_cast<i64>(c.a[1]), &at) || at < 0)
        return -EINVAL;
    h->offset = static_cast<u64>(at);
    return at;
}

i64 sys_getdents64(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    if (f->kind != Kind::host)
        return -ENOTDIR;
    auto* h = static_cast<HostFile*>(f);
    i64 next = static_cast<i64>(h->offset);
    const i64 n = host_call(kGetdents64, static_cast<u64>(h->handle), c.a[1], c.a[2], h->offset, address(&next));
    if (n > 0)
        h->offset = static_cast<u64>(next);
    return n;
}

i64 sys_memfd_create(const Args& c) {
    abi::OpenReply reply{};
    const i64 handle = host_call(319, c.a[0], c.a[1], address(&reply));
    if (handle < 0)
        return handle;
    HostFile* f = make_host_file(static_cast<i32>(handle), O_RDWR_, reply.seekable != 0, reply.mode);
    if (!f)
        return -ENOMEM;
    return install_or_release(f, (c.a[1] & 1) != 0);
}

i64 sys_ioctl(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    switch (c.a[1]) {
    case 0x5421: { // FIONBIO
        i32 on;
        if (!get_user(on, c.a[2]))
            return -EFAULT;
        f->flags = on ? f->flags | O_NONBLOCK_ : f->flags & ~u32{O_NONBLOCK_};
        return 0;
    }
    case 0x5451: // FIOCLEX
    case 0x5450: // FIONCLEX
    {
        Args g = c;
        g.a[1] = 2;
        g.a[2] = c.a[1] == 0x5451;
        return sys_fcntl(g);
    }
    case 0x541b: // FIONREAD
        if (const i64 n = bytes_ready(f); n >= 0) {
            const i32 ready = static_cast<i32>(n);
            return put_user(c.a[2], ready) ? 0 : -EFAULT;
        }
        break;
    default: break;
    }
    const i32 handle = handle_of(f);
    if (handle < 0)
        return -ENOTTY;
    return host_call(kIoctl, static_cast<u64>(handle), c.a[1], c.a[2]);
}

} // namespace gk
