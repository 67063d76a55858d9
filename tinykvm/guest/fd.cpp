// The fd table and what every file shares.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

Descriptor* table;
i32 table_size;

} // namespace

void init_files() {
    init_time();
    table_size = static_cast<i32>(gk_shared_page.max_files);
    table = static_cast<Descriptor*>(allocate(sizeof(Descriptor) * static_cast<u64>(table_size)));
    if (!table)
        fatal("no room for the fd table");
    const u32 flags[3] = {O_RDWR_, O_RDWR_, O_RDWR_};
    for (i32 i = 0; i < 3; ++i) {
        // The host says what stdin, stdout and stderr are.
        abi::OpenReply reply{};
        u8 stat[144] = {};
        host_call(5 /*fstat*/, static_cast<u64>(i), address(stat));
        memcpy(&reply.mode, stat + 24, 4);
        // Always streams: their offset is shared with whoever started us.
        File* f = make_host_file(i, flags[i], false, reply.mode);
        install(f, false);
    }
}

File* file_of(i32 fd) { return fd >= 0 && fd < table_size ? table[fd].file : nullptr; }

i32 install(File* f, bool cloexec, i32 lowest) {
    if (lowest < 0 || lowest >= table_size)
        return lowest < 0 ? -EINVAL : -EMFILE;
    for (i32 fd = lowest; fd < table_size; ++fd)
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

void event_in(File* f) {
    ++f->in_events;
    notify_io();
}
void event_out(File* f) {
    ++f->out_events;
    notify_io();
}

i64 read_file(File* f, Cursor& c, i64 offset) {
    if ((f->flags & O_ACCMODE_) == O_WRONLY_ || (f->flags & O_PATH_))
        return -EBADF;
    return f->ops->read(f, c, offset);
}
i64 write_file(File* f, Cursor& c, i64 offset) {
    if ((f->flags & O_ACCMODE_) == 0 || (f->flags & O_PATH_))
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

namespace {

// The program's iovecs, copied in; a few live on the stack.
class Vectors {
public:
    ~Vectors() {
        if (large_)
            release(large_, count_ * sizeof(IoVec));
    }
    i64 take(u64 at, u64 count) {
        if (count > 1024)
            return -EINVAL;
        count_ = count;
        IoVec* to = small_;
        if (count > kSmall) {
            large_ = static_cast<IoVec*>(allocate(count * sizeof(IoVec)));
            if (!large_)
                return -ENOMEM;
            to = large_;
        }
        if (!copy_from_user(to, at, count * sizeof(IoVec)))
            return -EFAULT;
        total_ = 0;
        for (u64 i = 0; i < count; ++i) {
            if (to[i].length > 0x7fffffffffffffff - total_)
                return -EINVAL;
            total_ += to[i].length;
        }
        return 0;
    }
    Cursor cursor() const { return {large_ ? large_ : small_, count_, total_}; }

private:
    static constexpr u64 kSmall = 8;
    IoVec small_[kSmall];
    IoVec* large_ = nullptr;
    u64 count_ = 0, total_ = 0;
};

// A file that stays while a call on it blocks, though another thread may close it.
class Hold {
public:
    explicit Hold(u64 fd) : file_(file_of(static_cast<i32>(fd))) {
        if (file_)
            ref(file_);
    }
    ~Hold() {
        if (file_)
            unref(file_);
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    File* get() const { return file_; }
    explicit operator bool() const { return file_ != nullptr; }

private:
    File* file_;
};

using Move = i64 (*)(File*, Cursor&, i64);

i64 move_one(const Args& c, Move move, i64 offset) {
    Hold f(c.a[0]);
    if (!f)
        return -EBADF;
    const IoVec one{c.a[1], c.a[2] > 0x7ffff000 ? 0x7ffff000 : c.a[2]};
    if (static_cast<i64>(c.a[2]) < 0)
        return -EINVAL;
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
    if (f->kind != Kind::host || !static_cast<HostFile*>(f)->seekable)
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
    if (static_cast<i64>(c.a[3]) == -1)
        return sys_readv(c);
    const i64 error = checked_offset(c.a[0], static_cast<i64>(c.a[3]));
    return error < 0 ? error : move_many(c, read_file, static_cast<i64>(c.a[3]));
}
i64 sys_pwritev(const Args& c) {
    if (static_cast<i64>(c.a[3]) == -1)
        return sys_writev(c);
    const i64 error = checked_offset(c.a[0], static_cast<i64>(c.a[3]));
    return error < 0 ? error : move_many(c, write_file, static_cast<i64>(c.a[3]));
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
    if (from == to || (c.a[2] & ~u64{O_CLOEXEC_}))
        return -EINVAL;
    File* f = file_of(from);
    if (!f || to < 0 || to >= table_size)
        return -EBADF;
    ref(f);
    close_fd(to);
    table[to] = {f, (c.a[2] & O_CLOEXEC_) != 0};
    return to;
}

i64 sys_dup2(const Args& c) {
    if (c.a[0] == c.a[1])
        return file_of(static_cast<i32>(c.a[0])) ? static_cast<i64>(c.a[0]) : -EBADF;
    Args d = c;
    d.a[2] = 0;
    return sys_dup3(d);
}

i64 sys_fcntl(const Args& c) {
    const i32 fd = static_cast<i32>(c.a[0]);
    File* f = file_of(fd);
    if (!f)
        return -EBADF;
    switch (c.a[1]) {
    case 0:      // F_DUPFD
    case 1030: { // F_DUPFD_CLOEXEC
        if (c.a[2] >= static_cast<u64>(table_size))
            return -EINVAL;
        const i32 fresh = install(f, c.a[1] == 1030, static_cast<i32>(c.a[2]));
        if (fresh >= 0)
            ref(f);
        return fresh;
    }
    case 1: return table[fd].cloexec ? 1 : 0; // F_GETFD
    case 2: table[fd].cloexec = (c.a[2] & 1) != 0; return 0;
    case 3: return f->flags; // F_GETFL
    case 4: {
        constexpr u32 changeable = O_NONBLOCK_ | O_APPEND_;
        f->flags = (f->flags & ~changeable) | (static_cast<u32>(c.a[2]) & changeable);
        return 0;
    }
    case 8: return 0;    // F_SETOWN
    case 9: return 0;
    case 1031: return 0; // F_SETPIPE_SZ
    case 1032: return 65536;
    case 5: case 6: case 7: case 36: case 37: case 38: { // record locks
        const i32 handle = handle_of(f);
        return handle >= 0 ? host_call(72, static_cast<u64>(handle), c.a[1], c.a[2]) : -EINVAL;
    }
    default: return -EINVAL;
    }
}

i64 sys_sendfile(const Args& c) {
    Hold out(c.a[0]), in(c.a[1]);
    if (!out || !in)
        return -EBADF;
    i64 offset = -1;
    if (c.a[2] && !get_user(offset, c.a[2]))
        return -EFAULT;
    constexpr u64 kChunk = 32768;
    u8* buffer = static_cast<u8*>(allocate(kChunk));
    if (!buffer)
        return -ENOMEM;
    const auto host = [&](File* f, u64 bytes, i64 at) -> i64 { // reads into kernel memory
        auto* h = static_cast<HostFile*>(f);
        const IoVec v{address(buffer), bytes};
        const i64 n = host_call(295, static_cast<u64>(h->handle), address(&v), 1, static_cast<u64>(at >= 0 ? at : static_cast<i64>(h->offset)));
        if (n > 0 && at < 0)
            h->offset += static_cast<u64>(n);
        return n;
    };
    if (in.get()->kind != Kind::host || !static_cast<HostFile*>(in.get())->seekable) {
        release(buffer, kChunk);
        return -EINVAL;
    }
    u64 done = 0;
    i64 error = 0;
    while (done < c.a[3]) {
        const u64 want = c.a[3] - done < kChunk ? c.a[3] - done : kChunk;
        const i64 n = host(in.get(), want, offset);
        if (n <= 0) {
            error = n;
            break;
        }
        const i64 sent = write_kernel(out.get(), buffer, static_cast<u64>(n));
        if (sent < n && offset < 0) // what was read but not sent is read again
            static_cast<HostFile*>(in.get())->offset -= static_cast<u64>(n - (sent > 0 ? sent : 0));
        if (sent <= 0) {
            error = sent;
            break;
        }
        done += static_cast<u64>(sent);
        if (offset >= 0)
            offset += sent;
        if (sent < n)
            break;
    }
    release(buffer, kChunk);
    if (done && c.a[2] && !put_user(c.a[2], offset))
        return -EFAULT;
    return done ? static_cast<i64>(done) : error;
}

} // namespace gk
