// sendfile and copy_file_range.
#include "tinykvm/guest/own_files.hpp"
#include "tinykvm/guest/transfer.hpp"

namespace gk {
namespace {

constexpr u64 kChunk = 32768;

class Buffer {
public:
    Buffer() : bytes_(static_cast<u8*>(allocate_dirty(kChunk))) {}
    ~Buffer() {
        if (bytes_)
            release(bytes_, kChunk);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    u8* get() const { return bytes_; }

private:
    u8* bytes_;
};

// The file, if it has an offset; otherwise null.
File* seekable(File* f) {
    if (f->kind == Kind::own)
        return f;
    return f->kind == Kind::host && static_cast<HostFile*>(f)->seekable ? f : nullptr;
}
u64& offset_of(File* f) {
    return f->kind == Kind::own ? static_cast<own::OwnFile*>(f)->offset : static_cast<HostFile*>(f)->offset;
}
u32 mode_of(const File* f) {
    return f->kind == Kind::own ? static_cast<const own::OwnFile*>(f)->node->mode
                                : static_cast<const HostFile*>(f)->mode;
}

enum class Direction { in, out };
i64 move_at(File* f, Direction direction, u8* buffer, u64 bytes, u64 offset) {
    IoVec v{address(buffer), bytes};
    Cursor c{&v, 1, bytes, true};
    return (direction == Direction::in ? f->ops->read : f->ops->write)(f, c, static_cast<i64>(offset));
}

// Whether x and y are the same file, and its size. A copy within one file must be limited to its size before the copy,
// or it may never reach the end.
bool same_file(File* x, File* y, u64& size) {
    if (x->kind != y->kind)
        return false;
    if (x->kind == Kind::own) {
        size = static_cast<own::OwnFile*>(x)->node->content.size;
        return static_cast<own::OwnFile*>(x)->node == static_cast<own::OwnFile*>(y)->node;
    }
    constexpr u32 kFstat = 5;
    u64 a[18] = {}, b[18] = {}; // struct stat: device, inode, ..., size at 48
    if (host_call(kFstat, static_cast<u64>(handle_of(x)), address(a)) < 0 ||
        host_call(kFstat, static_cast<u64>(handle_of(y)), address(b)) < 0)
        return false;
    size = a[6];
    return a[0] == b[0] && a[1] == b[1];
}

u64 rest(u64 size, i64 offset) { return size > static_cast<u64>(offset) ? size - static_cast<u64>(offset) : 0; }

bool readable(const File* f) { return (f->flags & O_ACCMODE_) != O_WRONLY_ && !(f->flags & O_PATH_); }
bool writable(const File* f) { return (f->flags & O_ACCMODE_) != 0 && !(f->flags & O_PATH_); }

// An offset in the program's memory, or the file's own offset.
struct OffsetArg {
    u64 user = 0;
    File* file = nullptr;
    i64 offset = 0;
    i64 open(u64 at, File* f) {
        user = at;
        file = f;
        if (user && !get_user(offset, user))
            return -EFAULT;
        if (!user)
            offset = static_cast<i64>(offset_of(file));
        return offset < 0 ? -EINVAL : 0;
    }
    bool close() {
        if (!user)
            offset_of(file) = static_cast<u64>(offset);
        return !user || put_user(user, offset);
    }
};

} // namespace

i64 sys_sendfile(const Args& c) {
    Hold out(c.a[0]), in(c.a[1]);
    if (!out || !in || !readable(in.get()) || !writable(out.get()))
        return -EBADF;
    File* from = seekable(in.get());
    if (!from || static_cast<i64>(c.a[3]) < 0 || (out.get()->flags & O_APPEND_))
        return -EINVAL;
    OffsetArg place;
    if (const i64 error = place.open(c.a[2], from); error < 0)
        return error;
    Buffer buffer;
    if (!buffer.get())
        return -ENOMEM;
    u64 done = 0;
    i64 error = 0;
    u64 most = c.a[3] < kMaxMoved ? c.a[3] : kMaxMoved;
    u64 size;
    if (File* to = seekable(out.get()); to && same_file(from, to, size) && rest(size, place.offset) < most)
        most = rest(size, place.offset); // only bytes that existed before the copy
    while (done < most) {
        const i64 n = move_at(from, Direction::in, buffer.get(), most - done < kChunk ? most - done : kChunk,
                              static_cast<u64>(place.offset));
        if (n <= 0) {
            error = n;
            break;
        }
        const i64 sent = write_kernel(out.get(), buffer.get(), static_cast<u64>(n));
        if (sent <= 0) {
            error = sent;
            break;
        }
        done += static_cast<u64>(sent);
        place.offset += sent;
        if (sent < n || !let_others_run())
            break;
    }
    if (done && !place.close())
        return -EFAULT;
    return done ? static_cast<i64>(done) : error;
}

i64 sys_copy_file_range(const Args& c) {
    Hold in(c.a[0]), out(c.a[2]);
    if (!in || !out)
        return -EBADF;
    if (c.a[5])
        return -EINVAL;
    File *from = seekable(in.get()), *to = seekable(out.get());
    if (!from || !to)
        return -EINVAL;
    if ((mode_of(from) & 0170000) == 0040000 || (mode_of(to) & 0170000) == 0040000)
        return -EISDIR;
    if (!readable(from) || !writable(to) || (to->flags & O_APPEND_))
        return -EBADF;
    OffsetArg source, target;
    i64 error = source.open(c.a[1], from);
    if (error == 0)
        error = target.open(c.a[3], to);
    if (error < 0)
        return error;
    Buffer buffer;
    if (!buffer.get())
        return -ENOMEM;
    u64 done = 0, size;
    u64 most = c.a[4] < kMaxMoved ? c.a[4] : kMaxMoved;
    if (same_file(from, to, size)) {
        if (rest(size, source.offset) < most)
            most = rest(size, source.offset);
        const u64 in_at = static_cast<u64>(source.offset), out_at = static_cast<u64>(target.offset);
        if (out_at + most > in_at && out_at < in_at + most)
            return -EINVAL;
    }
    while (done < most) {
        const i64 n = move_at(from, Direction::in, buffer.get(), most - done < kChunk ? most - done : kChunk,
                              static_cast<u64>(source.offset));
        const i64 put =
            n <= 0 ? n
                   : move_at(to, Direction::out, buffer.get(), static_cast<u64>(n), static_cast<u64>(target.offset));
        if (put <= 0) {
            error = put;
            break;
        }
        done += static_cast<u64>(put);
        source.offset += put;
        target.offset += put;
        if (put < n || !let_others_run())
            break;
    }
    if (!done)
        return error;
    const bool stored = source.close();
    return target.close() && stored ? static_cast<i64>(done) : -EFAULT;
}

} // namespace gk
