// poll, select and epoll. Readiness is asked of each file; waiting is wait_io() until something may have changed.
#include "tinykvm/guest/calls.hpp"

namespace gk {

struct EpollFile;
struct EpollItem {
    EpollFile* owner;
    File* file;
    i32 fd;
    u32 events;
    u64 data;
    u32 seen_in, seen_out; // edge-triggered: the file's counters at the last report
    bool armed;            // one-shot: not reported yet since it was set
    EpollItem* next;       // in its epoll
    EpollItem* previous;
    EpollItem* next_watcher; // of its file
};

struct EpollFile : File {
    EpollItem* first = nullptr;
    EpollItem* last = nullptr;
};

namespace {

enum : u32 { kExclusive = 1u << 28, kWakeup = 1u << 29, kOneshot = 1u << 30, kEdge = 1u << 31 };
constexpr u32 kAlways = POLLERR_ | POLLHUP_;

struct [[gnu::packed]] EpollEvent { u32 events; u64 data; };

void link(EpollFile* e, EpollItem* item) {
    item->next = nullptr;
    item->previous = e->last;
    (e->last ? e->last->next : e->first) = item;
    e->last = item;
}

void unlink(EpollFile* e, EpollItem* item) {
    (item->previous ? item->previous->next : e->first) = item->next;
    (item->next ? item->next->previous : e->last) = item->previous;
}

void drop_item(EpollItem* item) {
    unlink(item->owner, item);
    EpollItem** at = &item->file->watchers;
    while (*at != item)
        at = &(*at)->next_watcher;
    *at = item->next_watcher;
    destroy(item);
}

EpollItem* find(EpollFile* e, File* f, i32 fd) {
    for (EpollItem* item = f->watchers; item; item = item->next_watcher)
        if (item->owner == e && item->fd == fd)
            return item;
    return nullptr;
}

u32 ready(EpollItem* item) {
    if (!item->armed)
        return 0;
    u32 now = poll_file(item->file) & ((item->events & 0xffff) | kAlways);
    if (now && (item->events & kEdge)) {
        const bool in = item->seen_in != item->file->in_events;
        const bool out = item->seen_out != item->file->out_events;
        if (!in && !out)
            return 0;
    }
    return now;
}

void reported(EpollItem* item) {
    item->seen_in = item->file->in_events;
    item->seen_out = item->file->out_events;
    if (item->events & kOneshot)
        item->armed = false;
}

i64 epoll_no_io(File*, Cursor&, i64) { return -EINVAL; }
u32 epoll_poll(File* f) {
    for (EpollItem* item = static_cast<EpollFile*>(f)->first; item; item = item->next)
        if (ready(item))
            return POLLIN_ | POLLRDNORM_;
    return 0;
}
void epoll_close(File* f) {
    auto* e = static_cast<EpollFile*>(f);
    while (e->first)
        drop_item(e->first);
    destroy(e);
}
const FileOps epoll_ops{epoll_no_io, epoll_no_io, epoll_poll, epoll_close, "anon_inode:[eventpoll]"};

// Whether `e` is reachable through the epolls that `f` watches, at most five deep like Linux.
bool reaches(File* f, File* e, int depth) {
    if (f == e || depth > 5)
        return true;
    if (f->kind != Kind::epoll)
        return false;
    for (EpollItem* item = static_cast<EpollFile*>(f)->first; item; item = item->next)
        if (item->file->kind == Kind::epoll && reaches(item->file, e, depth + 1))
            return true;
    return false;
}

i64 timeout_ms(i64 ms) { return ms < 0 ? -1 : ms; }
u64 deadline_ms(i64 ms) {
    const i64 t = timeout_ms(static_cast<i32>(ms));
    return t < 0 ? kNever : t == 0 ? 0 : now_mono() + static_cast<u64>(t) * 1'000'000;
}

i64 epoll_wait_until(i32 fd, u64 events, i32 most, u64 deadline) {
    File* f = file_of(fd);
    if (!f)
        return -EBADF;
    if (f->kind != Kind::epoll || most <= 0)
        return -EINVAL;
    auto* e = static_cast<EpollFile*>(f);
    ref(f);
    i64 result = 0;
    for (;;) {
        EpollItem* item = e->first;
        EpollItem* const stop = e->last;
        while (item && result < most) {
            EpollItem* next = item->next;
            const bool final = item == stop;
            if (const u32 now = ready(item)) {
                const EpollEvent out{now, item->data};
                if (!put_user(events + static_cast<u64>(result) * sizeof(out), out)) {
                    if (result == 0)
                        result = -EFAULT;
                    unref(f);
                    return result;
                }
                ++result;
                reported(item);
                // To the end, so that a busy file does not starve the others.
                unlink(e, item);
                link(e, item);
            }
            if (final)
                break;
            item = next;
        }
        if (result > 0 || deadline == 0)
            break;
        if (deadline != kNever && now_mono() >= deadline)
            break;
        collect_interest(f, POLLIN_);
        const Wake wake = wait_io(deadline);
        if (wake == Wake::signal) {
            result = -EINTR;
            break;
        }
    }
    unref(f);
    return result;
}

} // namespace

void close_all_epoll_items(File* f) {
    while (f->watchers)
        drop_item(f->watchers);
}

void collect_interest(File* f, u32 events) {
    if (f->kind == Kind::epoll) {
        for (EpollItem* item = static_cast<EpollFile*>(f)->first; item; item = item->next)
            if (item->armed)
                collect_interest(item->file, item->events);
        return;
    }
    const i32 handle = handle_of(f);
    if (handle >= 0 && !(f->kind == Kind::host && static_cast<HostFile*>(f)->seekable))
        add_interest(handle, events & (POLLIN_ | POLLOUT_ | POLLPRI_ | POLLRDHUP_));
    else
        collect_conn_interest(f, events);
}

i64 sys_epoll_create1(const Args& c) {
    if (c.a[0] & ~u64{O_CLOEXEC_})
        return -EINVAL;
    auto* e = make<EpollFile>();
    if (!e)
        return -ENOMEM;
    e->ops = &epoll_ops;
    e->kind = Kind::epoll;
    e->flags = O_RDWR_;
    return install_or_release(e, (c.a[0] & O_CLOEXEC_) != 0);
}
i64 sys_epoll_create(const Args& c) {
    if (static_cast<i32>(c.a[0]) <= 0)
        return -EINVAL;
    Args d = c;
    d.a[0] = 0;
    return sys_epoll_create1(d);
}

i64 sys_epoll_ctl(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    const i32 fd = static_cast<i32>(c.a[2]);
    File* target = file_of(fd);
    EpollEvent event{};
    if (c.a[1] != 2 && !get_user(event, c.a[3]))
        return -EFAULT;
    if (!f || !target)
        return -EBADF;
    if (f->kind != Kind::epoll || f == target)
        return -EINVAL;
    if (target->kind == Kind::host && (static_cast<HostFile*>(target)->seekable || (static_cast<HostFile*>(target)->mode & 0170000) == 0040000))
        return -EPERM; // regular files and folders are always ready
    auto* e = static_cast<EpollFile*>(f);
    EpollItem* item = find(e, target, fd);
    switch (c.a[1]) {
    case 1: // EPOLL_CTL_ADD
        if (item)
            return -EEXIST;
        if (target->kind == Kind::epoll && reaches(target, f, 0))
            return -ELOOP;
        item = make<EpollItem>();
        if (!item)
            return -ENOMEM;
        item->owner = e;
        item->file = target;
        item->fd = fd;
        item->next_watcher = target->watchers;
        target->watchers = item;
        link(e, item);
        break;
    case 2: // EPOLL_CTL_DEL
        if (!item)
            return -ENOENT;
        drop_item(item);
        return 0;
    case 3: // EPOLL_CTL_MOD
        if (!item)
            return -ENOENT;
        break;
    default: return -EINVAL;
    }
    item->events = event.events;
    item->data = event.data;
    item->armed = true;
    // A fresh or changed item reports what holds now.
    item->seen_in = target->in_events - 1;
    item->seen_out = target->out_events - 1;
    notify_io();
    return 0;
}

i64 sys_epoll_wait(const Args& c) {
    return epoll_wait_until(static_cast<i32>(c.a[0]), c.a[1], static_cast<i32>(c.a[2]), deadline_ms(static_cast<i64>(c.a[3])));
}

i64 sys_epoll_pwait(const Args& c) {
    i64 error = 0;
    if (!use_temporary_mask(c.a[4], c.a[5], error))
        return error;
    const i64 result = sys_epoll_wait(c);
    drop_temporary_mask();
    return result;
}

i64 sys_epoll_pwait2(const Args& c) {
    u64 deadline = kNever;
    if (c.a[3]) {
        Timespec t;
        if (!get_user(t, c.a[3]))
            return -EFAULT;
        if (!valid(t))
            return -EINVAL;
        deadline = to_ns(t) == 0 ? 0 : deadline_of(1, false, t);
    }
    i64 error = 0;
    if (!use_temporary_mask(c.a[4], c.a[5], error))
        return error;
    const i64 result = epoll_wait_until(static_cast<i32>(c.a[0]), c.a[1], static_cast<i32>(c.a[2]), deadline);
    drop_temporary_mask();
    return result;
}

// --- poll ---------------------------------------------------------------------------------------------------------------

namespace {

struct PollFd { i32 fd; u16 events, revents; };

i64 poll_until(u64 fds, u64 count, u64 deadline) {
    if (count > gk_shared_page.max_files)
        return -EINVAL;
    const u64 bytes = count * sizeof(PollFd);
    PollFd small[16];
    PollFd* list = small;
    if (count > 16) {
        list = static_cast<PollFd*>(allocate(bytes));
        if (!list)
            return -ENOMEM;
    }
    i64 result = 0;
    if (count && !copy_from_user(list, fds, bytes))
        result = -EFAULT;
    while (result == 0) {
        for (u64 i = 0; i < count; ++i) {
            PollFd& p = list[i];
            p.revents = 0;
            if (p.fd < 0)
                continue;
            File* f = file_of(p.fd);
            p.revents = static_cast<u16>(f ? poll_file(f) & (p.events | kAlways) : POLLNVAL_);
            result += p.revents != 0;
        }
        if (result > 0 || deadline == 0 || (deadline != kNever && now_mono() >= deadline))
            break;
        for (u64 i = 0; i < count; ++i)
            if (File* f = list[i].fd < 0 ? nullptr : file_of(list[i].fd))
                collect_interest(f, list[i].events);
        if (wait_io(deadline) == Wake::signal)
            result = -EINTR;
    }
    if (result >= 0 && count && !copy_to_user(fds, list, bytes))
        result = -EFAULT;
    if (list != small)
        release(list, bytes);
    return result;
}

i64 select_until(i32 n, u64 in, u64 out, u64 except, u64 deadline) {
    constexpr u32 kWords = 64; // 4096 descriptors
    if (n < 0)
        return -EINVAL;
    if (n > static_cast<i32>(kWords * 64))
        n = kWords * 64;
    const u64 bytes = (static_cast<u64>(n) + 63) / 64 * 8;
    u64* const sets = static_cast<u64*>(allocate(6 * kWords * 8));
    if (!sets)
        return -ENOMEM;
    const u64 user[3] = {in, out, except};
    i64 result = 0;
    for (u32 s = 0; s < 3; ++s)
        if (user[s] && !copy_from_user(sets + s * kWords, user[s], bytes))
            result = -EFAULT;
    while (result == 0) {
        memset(sets + 3 * kWords, 0, 3 * kWords * 8);
        for (i32 fd = 0; fd < n && result >= 0; ++fd) {
            const u32 word = static_cast<u32>(fd) / 64;
            const u64 bit = u64{1} << (fd % 64);
            u32 wanted = 0;
            for (u32 s = 0; s < 3; ++s)
                if (sets[s * kWords + word] & bit)
                    wanted |= s == 0 ? POLLIN_ | POLLHUP_ | POLLERR_ : s == 1 ? POLLOUT_ | POLLERR_ : u32{POLLPRI_};
            if (!wanted)
                continue;
            File* f = file_of(fd);
            if (!f) {
                result = -EBADF;
                break;
            }
            const u32 now = poll_file(f);
            const u32 meaning[3] = {POLLIN_ | POLLHUP_ | POLLERR_, POLLOUT_ | POLLERR_, POLLPRI_};
            for (u32 s = 0; s < 3; ++s)
                if ((sets[s * kWords + word] & bit) && (now & meaning[s])) {
                    sets[(3 + s) * kWords + word] |= bit;
                    ++result;
                }
        }
        if (result != 0 || deadline == 0 || (deadline != kNever && now_mono() >= deadline))
            break;
        for (i32 fd = 0; fd < n; ++fd) {
            const u32 word = static_cast<u32>(fd) / 64;
            const u64 bit = u64{1} << (fd % 64);
            u32 wanted = 0;
            for (u32 s = 0; s < 3; ++s)
                if (sets[s * kWords + word] & bit)
                    wanted |= s == 0 ? u32{POLLIN_} : s == 1 ? u32{POLLOUT_} : u32{POLLPRI_};
            if (File* f = wanted ? file_of(fd) : nullptr)
                collect_interest(f, wanted);
        }
        if (wait_io(deadline) == Wake::signal)
            result = -EINTR;
    }
    if (result >= 0)
        for (u32 s = 0; s < 3; ++s)
            if (user[s] && !copy_to_user(user[s], sets + (3 + s) * kWords, bytes))
                result = -EFAULT;
    release(sets, 6 * kWords * 8);
    return result;
}

} // namespace

i64 sys_poll(const Args& c) { return poll_until(c.a[0], c.a[1] & 0xffffffff, deadline_ms(static_cast<i64>(c.a[2]))); }

i64 sys_ppoll(const Args& c) {
    u64 deadline = kNever;
    if (c.a[2]) {
        Timespec t;
        if (!get_user(t, c.a[2]))
            return -EFAULT;
        if (!valid(t))
            return -EINVAL;
        deadline = to_ns(t) == 0 ? 0 : deadline_of(1, false, t);
    }
    i64 error = 0;
    if (!use_temporary_mask(c.a[3], c.a[4], error))
        return error;
    const i64 result = poll_until(c.a[0], c.a[1] & 0xffffffff, deadline);
    drop_temporary_mask();
    return result;
}

i64 sys_select(const Args& c) {
    u64 deadline = kNever;
    if (c.a[4]) {
        struct { i64 sec, usec; } t;
        if (!get_user(t, c.a[4]))
            return -EFAULT;
        if (t.sec < 0 || t.usec < 0)
            return -EINVAL;
        const u64 ns = to_ns(Timespec{t.sec, 0}) + static_cast<u64>(t.usec) * 1000;
        deadline = ns == 0 ? 0 : now_mono() + ns;
    }
    return select_until(static_cast<i32>(c.a[0]), c.a[1], c.a[2], c.a[3], deadline);
}

i64 sys_pselect6(const Args& c) {
    u64 deadline = kNever;
    if (c.a[4]) {
        Timespec t;
        if (!get_user(t, c.a[4]))
            return -EFAULT;
        if (!valid(t))
            return -EINVAL;
        deadline = to_ns(t) == 0 ? 0 : deadline_of(1, false, t);
    }
    struct { u64 mask, bytes; } mask{};
    if (c.a[5] && !get_user(mask, c.a[5]))
        return -EFAULT;
    i64 error = 0;
    if (!use_temporary_mask(mask.mask, mask.bytes, error))
        return error;
    const i64 result = select_until(static_cast<i32>(c.a[0]), c.a[1], c.a[2], c.a[3], deadline);
    drop_temporary_mask();
    return result;
}

} // namespace gk
