// Ancillary data of Unix sockets: files (SCM_RIGHTS), and the sender's credentials (SCM_CREDENTIALS). The sender is
// always the program itself.
#include "tinykvm/guest/local.hpp"

namespace gk {
namespace {

struct Header {
    u64 length;
    i32 level, type;
};
enum : i32 { SCM_RIGHTS_ = 1, SCM_CREDENTIALS_ = 2 };
struct Sender {
    u32 pid, uid, gid;
};
constexpr u64 kMaxControl = 8192; // larger than any valid combination of the known messages

u64 aligned(u64 bytes) { return (bytes + 7) & ~u64{7}; }
Sender own() { return {gk_shared_page.pid, current->ids.user.real, current->ids.group.real}; }

i64 take_files(const u8* numbers, u64 count, Passed*& out) {
    if (count > kMaxPassed || out)
        return -EINVAL;
    Passed* p = make_passed(static_cast<u32>(count));
    if (!p)
        return -ENOMEM;
    out = p;
    for (u64 i = 0; i < count; ++i) {
        i32 fd;
        memcpy(&fd, numbers + i * sizeof(fd), sizeof(fd));
        p->files[i] = file_of(fd);
        if (!p->files[i])
            return -EBADF;
        ref(p->files[i]);
    }
    return 0;
}

i64 parse(const u8* control, u64 bytes, Passed*& out) {
    for (u64 at = 0; at + sizeof(Header) <= bytes;) {
        Header h;
        memcpy(&h, control + at, sizeof(h));
        if (h.length < sizeof(h) || h.length > bytes - at)
            return -EINVAL;
        const u8* const data = control + at + sizeof(h);
        const u64 length = h.length - sizeof(h);
        at += aligned(h.length);
        if (h.level != static_cast<i32>(SOL_SOCKET_))
            continue;
        if (h.type == SCM_RIGHTS_) {
            if (const i64 error = length >= 4 ? take_files(data, length / 4, out) : 0; error < 0)
                return error;
        } else if (h.type == SCM_CREDENTIALS_) {
            Sender said;
            if (length != sizeof(said))
                return -EINVAL;
            memcpy(&said, data, sizeof(said));
            const Sender is = own();
            if (said.pid != is.pid || said.uid != is.uid || said.gid != is.gid)
                return -EPERM;
        } else {
            return -EINVAL;
        }
    }
    return 0;
}

// The program's buffer for control messages.
struct Room {
    u64 at, left, used = 0;
    bool cut = false;
    bool put(i32 type, const void* data, u64 bytes) {
        if (left < sizeof(Header)) {
            cut = true;
            return true;
        }
        const u64 whole = sizeof(Header) + bytes;
        const Header h{whole < left ? whole : left, static_cast<i32>(SOL_SOCKET_), type};
        cut |= whole > left;
        if (!put_user(at, h) || !copy_to_user(at + sizeof(h), data, h.length - sizeof(h)))
            return false;
        const u64 step = aligned(whole) < left ? aligned(whole) : left;
        at += step;
        used += step;
        left -= step;
        return true;
    }
};

bool put_files(Room& room, Passed* p, bool cloexec) {
    i32 numbers[kMaxPassed];
    const u64 fit = room.left > sizeof(Header) ? (room.left - sizeof(Header)) / sizeof(i32) : 0;
    u32 n = 0;
    while (n < p->count && n < fit) {
        const i32 fd = install(p->files[n], cloexec);
        if (fd < 0)
            break;
        p->files[n] = nullptr; // the descriptor now holds the reference
        numbers[n++] = fd;
    }
    room.cut |= n < p->count;
    if (n == 0 || room.put(SCM_RIGHTS_, numbers, n * sizeof(i32)))
        return true;
    for (u32 i = 0; i < n; ++i) // the program did not receive them
        close_fd(numbers[i]);
    return false;
}

} // namespace

i64 passed_from(u64 control_at, u64 bytes, Passed*& out) {
    if (bytes < sizeof(Header))
        return 0;
    if (bytes > kMaxControl)
        return -ENOBUFS;
    auto* control = static_cast<u8*>(allocate_dirty(bytes));
    if (!control)
        return -ENOMEM;
    i64 error = copy_from_user(control, control_at, bytes) ? parse(control, bytes, out) : -EFAULT;
    release(control, bytes);
    if (error < 0 && out) {
        drop_passed(out);
        out = nullptr;
    }
    return error;
}

i64 passed_to(u64 control_at, u64 bytes, Passed* p, bool credentials, bool cloexec, u32& out_flags) {
    Room room{control_at, control_at ? bytes : 0};
    const Sender is = own();
    bool good = !credentials || room.put(SCM_CREDENTIALS_, &is, sizeof(is));
    if (p) {
        good = good && put_files(room, p, cloexec);
        drop_passed(p);
    }
    if (room.cut)
        out_flags |= MSG_CTRUNC_;
    return good ? static_cast<i64>(room.used) : -EFAULT;
}

} // namespace gk
