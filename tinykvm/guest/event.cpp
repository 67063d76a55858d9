// eventfd.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

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
