// The calls of the send and recv families, on sockets of any kind.
#include "tinykvm/guest/socket.hpp"
#include "tinykvm/guest/transfer.hpp"

namespace gk {

namespace {

// Sends or receives one message on a socket of any kind.
i64 transfer(File* f, Cursor& cursor, u32 flags, bool sending, u64 name, u32* name_bytes, u32* out_flags,
             Passed** passed) {
    auto* s = static_cast<Socket*>(f);
    return sending ? send(s, cursor, flags, name, name_bytes ? *name_bytes : 0, passed ? *passed : nullptr)
                   : receive(s, cursor, flags, name, name_bytes, out_flags, passed);
}

struct MsgHeader {
    u64 name;
    u32 name_bytes, pad;
    u64 iov, iov_count, control, control_bytes;
    u32 flags, pad2;
};

i64 message(File* f, u64 header_at, u32 flags, bool sending) {
    MsgHeader h;
    if (!get_user(h, header_at))
        return -EFAULT;
    if (h.iov_count > 1024)
        return -EMSGSIZE;
    if (f->kind != Kind::socket)
        return -ENOTSOCK;
    auto* s = static_cast<Socket*>(f);
    Vectors vectors;
    if (const i64 error = vectors.take(h.iov, h.iov_count); error < 0)
        return error;
    Cursor cursor = vectors.cursor();
    u32 out_flags = 0;
    u32 name_bytes = h.name ? h.name_bytes : 0;
    Passed* passed = nullptr;
    if (sending && h.control && s->family == AF_UNIX_)
        if (const i64 error = passed_from(h.control, h.control_bytes, passed); error < 0)
            return error;
    const i64 n = transfer(f, cursor, flags, sending, h.name, &name_bytes, &out_flags, &passed);
    if (n < 0 || sending)
        return n;
    if (h.name)
        h.name_bytes = name_bytes;
    const u64 room = h.control_bytes;
    h.control_bytes = 0;
    const bool credentials = s->pass_credentials && s->mode == Mode::local;
    if (passed || credentials) {
        const i64 used = passed_to(h.control, room, passed, credentials, (flags & MSG_CMSG_CLOEXEC_) != 0, out_flags);
        if (used < 0)
            return used;
        h.control_bytes = static_cast<u64>(used);
    }
    h.flags = out_flags;
    return put_user(header_at, h) ? n : -EFAULT;
}

i64 plain(const Args& c, bool sending) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    if (f->kind != Kind::socket)
        return -ENOTSOCK;
    if (c.a[2] && !user_ok(c.a[1], c.a[2] > kMaxMoved ? kMaxMoved : c.a[2]))
        return -EFAULT;
    IoVec one{c.a[1], c.a[2] > kMaxMoved ? kMaxMoved : c.a[2]};
    Cursor cursor{&one, 1, one.length};
    u32 name_bytes = 0;
    if (sending)
        name_bytes = static_cast<u32>(c.a[5]);
    else if (c.a[4] && (!c.a[5] || !get_user(name_bytes, c.a[5])))
        return -EFAULT;
    ref(f);
    const i64 n = transfer(f, cursor, static_cast<u32>(c.a[3]), sending, c.a[4], &name_bytes, nullptr, nullptr);
    unref(f);
    if (n >= 0 && !sending && c.a[4] && !put_user(c.a[5], name_bytes))
        return -EFAULT;
    return n;
}

} // namespace

i64 sys_sendto(const Args& c) { return plain(c, true); }
i64 sys_recvfrom(const Args& c) { return plain(c, false); }

i64 sys_sendmsg(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    ref(f);
    const i64 n = message(f, c.a[1], static_cast<u32>(c.a[2]), true);
    unref(f);
    return n;
}
i64 sys_recvmsg(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    ref(f);
    const i64 n = message(f, c.a[1], static_cast<u32>(c.a[2]), false);
    unref(f);
    return n;
}

namespace {
i64 many_messages(const Args& c, bool sending) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    const u32 count = static_cast<u32>(c.a[2]) > 1024 ? 1024 : static_cast<u32>(c.a[2]);
    ref(f);
    i64 done = 0, n = 0;
    for (u32 i = 0; i < count; ++i) {
        const u64 at = c.a[1] + i * 64;
        n = message(f, at, static_cast<u32>(c.a[3]) | (i ? u32{MSG_DONTWAIT_} : 0), sending);
        if (n < 0)
            break;
        const u32 bytes = static_cast<u32>(n);
        if (!put_user(at + sizeof(MsgHeader), bytes)) {
            n = -EFAULT;
            break;
        }
        ++done;
    }
    unref(f);
    return done ? done : n;
}
} // namespace
i64 sys_sendmmsg(const Args& c) { return many_messages(c, true); }
i64 sys_recvmmsg(const Args& c) { return many_messages(c, false); }

} // namespace gk
