// Files on the host. The guest kernel keeps descriptors and offsets; the host knows handles only. Calls with paths are
// in paths.cpp.
#include "tinykvm/guest/limits.hpp"
#include "tinykvm/guest/own_files.hpp"
#include "tinykvm/guest/socket.hpp"
#include "tinykvm/guest/sysv.hpp"

namespace gk {
namespace {

// clang-format off
enum Nr : u32 {
    kFstat = 5, kLseek = 8, kIoctl = 16, kAccess = 21, kFcntl = 72, kFlock = 73, kFsync = 74,
    kFdatasync = 75, kFtruncate = 77, kGetdents64 = 217, kOpenat = 257, kNewfstatat = 262, kPreadv = 295,
    kPwritev = 296,
};
// clang-format on

// Reads or writes a stream. The host never blocks: it returns EAGAIN or moves a part.
i64 move_stream(HostFile* f, Cursor& c, u32 nr, u32 events) {
    const bool writing = nr == kPwritev;
    u64 done = 0;
    for (;;) {
        const i64 n = host_call(nr, static_cast<u64>(f->handle), address(c.vec), c.count, ~u64{0});
        if (writing)
            took_out(f);
        else
            took_in(f);
        if (n == -EPIPE && writing)
            broken_pipe();
        if (n != -EAGAIN) {
            if (n < 0)
                return done ? static_cast<i64>(done) : n;
            done += static_cast<u64>(n);
            c.advance(static_cast<u64>(n) < c.left ? static_cast<u64>(n) : c.left);
            if (!writing || c.left == 0 || !let_others_run())
                return static_cast<i64>(done);
        }
        if (nonblocking(f)) {
            if (n == -EAGAIN)
                return done ? static_cast<i64>(done) : -EAGAIN;
            continue;
        }
        if (n != -EAGAIN)
            continue;
        add_interest(f->handle, events);
        if (wait_io(kNever) == Wake::signal)
            return done ? static_cast<i64>(done) : -ERESTARTSYS;
    }
}

i64 host_move(HostFile* f, Cursor& c, i64 offset, u32 nr, u32 events) {
    if (!f->seekable)
        return move_stream(f, c, nr, events);
    if (nr == kPwritev && offset < 0 && (f->flags & O_APPEND_)) {
        u8 stat[144];
        host_call(kFstat, static_cast<u64>(f->handle), address(stat));
        memcpy(&f->offset, stat + 48, 8);
    }
    const u64 at = offset >= 0 ? static_cast<u64>(offset) : f->offset;
    if (nr == kPreadv && f->fresh()) {
        i64 size;
        memcpy(&size, f->stat + 48, sizeof(size));
        if (size > 0 && at >= static_cast<u64>(size)) // a size of 0 may be that of a synthetic file
            return 0;
        if (last_content.owner == f && at < last_content.bytes) {
            const i64 n = c.put(last_content.data + at, last_content.bytes - at);
            if (n > 0 && offset < 0)
                f->offset += static_cast<u64>(n);
            return n;
        }
    }
    u64 most = c.left;
    if (nr == kPwritev)
        if (const i64 error = within_file_limit(at, most); error < 0)
            return error;
    if (most < c.left)
        c.shorten(most);
    const i64 n = host_call(nr, static_cast<u64>(f->handle), address(c.vec), c.count, at);
    if (n > 0 && offset < 0)
        f->offset += static_cast<u64>(n);
    return n;
}

i64 host_read(File* f, Cursor& c, i64 offset) {
    return host_move(static_cast<HostFile*>(f), c, offset, kPreadv, POLLIN_);
}
i64 host_write(File* f, Cursor& c, i64 offset) {
    return host_move(static_cast<HostFile*>(f), c, offset, kPwritev, POLLOUT_);
}
u32 host_poll(File* f) {
    auto* h = static_cast<HostFile*>(f);
    if (always_ready(h))
        return POLLIN_ | POLLOUT_ | POLLRDNORM_ | POLLWRNORM_;
    return poll_handle(h->handle, POLLIN_ | POLLOUT_);
}
void host_close(File* f) {
    auto* h = static_cast<HostFile*>(f);
    abi::Shared& s = gk_shared_page;
    if (h->seekable && s.close_count < sizeof(s.closes) / sizeof(s.closes[0]))
        s.closes[s.close_count++] = h->handle; // can wait for the next exit
    else
        host_call(abi::kCloseHandle, static_cast<u64>(h->handle));
    destroy(h);
}
const FileOps host_ops{host_read, host_write, host_poll, host_close, "file"};
} // namespace

[[gnu::section(".bss.large")]] Content last_content;

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

namespace {
bool answered; // Shared::wait holds the host's answers from after the program last ran

bool find_answer(i32 handle, u32 events, u32& revents) {
    const abi::Wait& wait = gk_shared_page.wait;
    for (u32 i = 0; answered && i < wait.handle_count && i < abi::kMaxWaitHandles; ++i)
        if (wait.handles[i].handle == handle &&
            (events & ~static_cast<u32>(static_cast<u16>(wait.handles[i].events))) == 0) {
            revents = static_cast<u16>(wait.handles[i].revents);
            return true;
        }
    return false;
}

void ask_host() {
    abi::Wait& wait = gk_shared_page.wait;
    wait.listeners = 0;
    wait.deadline_ns = 0;
    wait.runnable = 1;
    host_call(abi::kPoll);
    conns_updated();
    answered = true;
}
} // namespace

bool always_ready(const HostFile* f) {
    const u32 type = f->mode & 0170000;
    return f->seekable || type == 0040000 || type == 0100000;
}

bool no_poll(HostFile* f) {
    if (always_ready(f))
        return true;
    if ((f->mode & 0170000) != 0020000)
        return false;
    u64 stat[18] = {};
    host_call(kFstat, static_cast<u64>(f->handle), address(stat));
    const u64 device = stat[5]; // st_rdev: /dev/null, /dev/zero and /dev/full cannot be polled
    return device == 0x103 || device == 0x105 || device == 0x107;
}

u32 poll_handle(i32 handle, u32 events) {
    u32 revents = 0;
    if (find_answer(handle, events, revents))
        return revents;
    abi::Wait& wait = gk_shared_page.wait;
    wait.handle_count = 1;
    wait.handles[0] = {handle, static_cast<std::int16_t>(events), 0};
    ask_host();
    return static_cast<u32>(static_cast<u16>(wait.handles[0].revents));
}

void ask_handles() {
    const Thread* t = current;
    bool known = true;
    for (u32 i = 0; i < t->interest_count && known; ++i) {
        u32 revents;
        known = find_answer(t->interest[i].handle, t->interest[i].events, revents);
    }
    if (known)
        return;
    abi::Wait& wait = gk_shared_page.wait;
    for (u32 i = 0; i < t->interest_count; ++i)
        wait.handles[i] = {t->interest[i].handle, static_cast<std::int16_t>(t->interest[i].events), 0};
    wait.handle_count = t->interest_count;
    ask_host();
}

void forget_answers() { answered = false; }

void note_answers() { answered = true; }

void add_interest(i32 handle, u32 events) {
    Thread* t = current;
    for (u32 i = 0; i < t->interest_count; ++i)
        if (t->interest[i].handle == handle) {
            t->interest[i].events |= events;
            return;
        }
    if (!t->interest)
        t->interest = static_cast<HandleInterest*>(allocate_dirty(kMaxInterest * sizeof(HandleInterest)));
    if (t->interest && t->interest_count < kMaxInterest)
        t->interest[t->interest_count++] = {handle, events};
    else
        t->interest_overflow = true;
}
void clear_interest() {
    current->interest_count = 0;
    current->interest_overflow = false;
}

i64 write_kernel(File* f, const void* from, u64 bytes) {
    IoVec one{address(from), bytes};
    Cursor c{&one, 1, bytes, true};
    return write_file(f, c, -1);
}
// The number of arguments of a call that goes to the host. The other registers hold leftovers of the program.
u32 argument_count(u32 nr) {
    // clang-format off
    switch (nr) {
    case 12: case 74: case 75: case 80: case 81: case 306: return 1; // brk fsync fdatasync chdir fchdir syncfs
    case 11: case 76: case 149: case 150: case 77: case 79: case 91: case 137: case 138: case 197: case 198: case 199:
        return 2; // munmap mlock munlock truncate ftruncate getcwd fchmod statfs fstatfs [lf]removexattr
    case 10: case 26: case 27: case 93: case 187: case 194: case 195: case 196: case 263: case 268: case 269: case 318:
        return 3; // mprotect msync mincore fchown readahead [lf]listxattr unlinkat fchmodat faccessat getrandom
    case 191: case 192: case 193: case 221: case 277: case 280: case 285: case 439: case 452:
        return 4; // [lf]getxattr fadvise64 sync_file_range utimensat fallocate faccessat2 fchmodat2
    default: return 5; // mremap [lf]setxattr fchownat
    }
    // clang-format on
}

Args only_arguments(const Args& c) {
    Args own = c;
    for (u32 i = argument_count(static_cast<u32>(c.regs->orig_rax)); i < 6; ++i)
        own.a[i] = 0;
    return own;
}

// Calls that go to the host unchanged.
i64 sys_host_call(const Args& given) {
    const Args c = only_arguments(given);
    const u32 nr = static_cast<u32>(c.regs->orig_rax);
    // mprotect, munmap, brk, mremap, msync, mlock, munlock: the host checks the range
    const bool memory = nr == 10 || nr == 11 || nr == 12 || nr == 25 || nr == 26 || nr == 149 || nr == 150;
    const i64 result = (memory ? host_call : pass_call)(nr, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5]);
    if (nr == 11 && result == 0)
        segments_unmapped(c.a[0], c.a[1]);
    else if (nr == 25 && result > 0)
        segments_moved(c.a[0], c.a[1], static_cast<u64>(result), c.a[2]);
    return result;
}
namespace {

// fstatfs of a pipe, a socket or the like.
i64 stat_file_system(const File* f, u64 to) {
    struct {
        u64 type, block_size, counts[5], id, name_length, fragment, flags, spare[4];
    } s{};
    static_assert(sizeof(s) == 120);
    s.type = f->kind == Kind::pipe ? 0x50495045 : f->kind == Kind::socket ? 0x534f434b : 0x09041934;
    s.block_size = s.fragment = 4096;
    s.name_length = 255;
    s.flags = 0x20; // ST_VALID
    return put_user(to, s) ? 0 : -EFAULT;
}

} // namespace

// Calls whose first argument is the descriptor of a host file.
i64 sys_handle_call(const Args& given) {
    const Args c = only_arguments(given);
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    if (own::OwnFile* o = own::own_file(f))
        return own::handle_call(o, static_cast<u32>(c.regs->orig_rax), c);
    const i32 handle = handle_of(f);
    if (handle < 0 && c.regs->orig_rax == 138)
        return stat_file_system(f, c.a[1]);
    if (handle < 0)
        return -EINVAL;
    if (f->flags & O_PATH_ && c.regs->orig_rax != 138 && c.regs->orig_rax != 81) // fstatfs, fchdir
        return -EBADF;
    return pass_call(static_cast<u32>(c.regs->orig_rax), static_cast<u64>(handle), c.a[1], c.a[2], c.a[3], c.a[4],
                     c.a[5]);
}

i64 sys_lseek(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    if (own::OwnFile* o = own::own_file(f))
        return own::seek(o, static_cast<i64>(c.a[1]), static_cast<u32>(c.a[2]));
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
    case 3: // SEEK_DATA, SEEK_HOLE: only the host knows
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
    if (own::OwnFile* o = own::own_file(f))
        return (f->flags & O_PATH_) ? -EBADF : own::list(o, c.a[1], c.a[2] & 0xffffffff);
    if (f->kind != Kind::host)
        return -ENOTDIR;
    auto* h = static_cast<HostFile*>(f);
    i64 next = static_cast<i64>(h->offset);
    if (!user_ok(c.a[1], 0))
        return -EFAULT;
    const i64 n = host_call(kGetdents64, static_cast<u64>(h->handle), c.a[1], c.a[2], h->offset, address(&next));
    if (n > 0)
        h->offset = static_cast<u64>(next);
    return n;
}

i64 sys_memfd_create(const Args& c) {
    abi::OpenReply reply{};
    if (!user_ok(c.a[0], 0))
        return -EFAULT;
    const i64 handle = host_call(319, c.a[0], c.a[1], address(&reply));
    if (handle < 0)
        return handle;
    HostFile* f = make_host_file(static_cast<i32>(handle), O_RDWR_, reply.seekable != 0, reply.mode);
    if (!f) {
        host_call(abi::kCloseHandle, static_cast<u64>(handle));
        return -ENOMEM;
    }
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
    case 0x5452: { // FIOASYNC: accepted where Linux does, and no SIGIO is ever sent, as for F_SETOWN
        i32 on;
        if (!get_user(on, c.a[2]))
            return -EFAULT;
        if (on && f->kind != Kind::socket && f->kind != Kind::pipe)
            break;
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
    case 0x8905: { // SIOCATMARK
        if (f->kind != Kind::socket)
            break;
        const auto* s = static_cast<const Socket*>(f);
        const i32 at = s->mode == Mode::local && local_at_mark(s);
        if (s->mode == Mode::host)
            break;
        return put_user(c.a[2], at) ? 0 : -EFAULT;
    }
    case 0x8910:
    case 0x8911:
    case 0x8912:
    case 0x8913:
    case 0x8914:
    case 0x8915:
    case 0x8916:
    case 0x8917:
    case 0x8918:
    case 0x8919:
    case 0x891a:
    case 0x891b:
    case 0x891c:
    case 0x891d:
    case 0x891e:
    case 0x8921:
    case 0x8922:
    case 0x8923:
    case 0x8924:
    case 0x8927:
    case 0x8933:
    case 0x8942:
    case 0x8943: // ioctls on network interfaces, allowed on any socket
        if (f->kind == Kind::socket)
            return pass_call(abi::kInterface, c.a[1], c.a[2]);
        break;
    case 0x5411: // SIOCOUTQ
        if (f->kind == Kind::socket && static_cast<Socket*>(f)->mode == Mode::local) {
            const i32 unsent = static_cast<i32>(local_bytes_unsent(static_cast<Socket*>(f)));
            return put_user(c.a[2], unsent) ? 0 : -EFAULT;
        }
        break;
    case 0x541b: // FIONREAD
        if (const u64 bytes = own::watch_bytes_ready(f)) {
            const i32 ready = static_cast<i32>(bytes);
            return put_user(c.a[2], ready) ? 0 : -EFAULT;
        }
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
    return pass_call(kIoctl, static_cast<u64>(handle), c.a[1], c.a[2]);
}

} // namespace gk
