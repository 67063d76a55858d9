// epoll. Polls each file for its readiness, and waits in wait_io() until something may have changed.
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
    bool armed;            // false: one-shot, and already reported
    EpollItem* next;       // items of the same epoll
    EpollItem* previous;
    EpollItem* next_watcher; // items of the same file
};

struct EpollFile : File {
    EpollItem* first = nullptr;
    EpollItem* last = nullptr;
};

namespace {

enum : u32 { kExclusive = 1u << 28, kWakeup = 1u << 29, kOneshot = 1u << 30, kEdge = 1u << 31 };
constexpr u32 kAlways = POLLERR_ | POLLHUP_;

struct [[gnu::packed]] EpollEvent {
    u32 events;
    u64 data;
};

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

constexpr u32 kIn = POLLIN_ | POLLPRI_ | POLLRDNORM_ | POLLRDHUP_ | kAlways;
constexpr u32 kOut = POLLOUT_ | POLLWRNORM_ | kAlways;

u32 ready(EpollItem* item) {
    if (!item->armed)
        return 0;
    const u32 now = poll_file(item->file) & ((item->events & 0xffff) | kAlways);
    if (now && (item->events & kEdge)) {
        const bool in = (now & kIn) && item->seen_in != item->file->in_events;
        const bool out = (now & kOut) && item->seen_out != item->file->out_events;
        if (!in && !out)
            return 0;
    }
    return now;
}

void reported(EpollItem* item, u32 what) {
    if (what & kIn)
        item->seen_in = item->file->in_events;
    if (what & kOut)
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

// Whether `e` is reachable through the epolls that `f` watches. As on Linux, nesting is limited to five levels.
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

// Stores the events that are ready now in the program's array. Their number, or -EFAULT.
i64 report(EpollFile* e, u64 events, i32 most) {
    i64 result = 0;
    EpollItem* item = e->first;
    EpollItem* const stop = e->last;
    while (item && result < most) {
        EpollItem* next = item->next;
        const bool final = item == stop;
        if (const u32 now = ready(item)) {
            const EpollEvent out{now, item->data};
            if (!put_user(events + static_cast<u64>(result) * sizeof(out), out))
                return result ? result : -EFAULT;
            ++result;
            reported(item, now);
            // Move it to the end, so that a busy file does not starve the others.
            unlink(e, item);
            link(e, item);
        }
        if (final)
            break;
        item = next;
    }
    return result;
}

i64 epoll_wait_until(i32 fd, u64 events, i32 most, u64 deadline) {
    File* f = file_of(fd);
    if (most <= 0 || most > 0x7fffffff / static_cast<i32>(sizeof(EpollEvent)))
        return -EINVAL;
    if (!user_ok(events, static_cast<u64>(most) * sizeof(EpollEvent)))
        return -EFAULT;
    if (!f)
        return -EBADF;
    if (f->kind != Kind::epoll)
        return -EINVAL;
    ref(f);
    i64 result;
    for (;;) {
        collect_interest(f, POLLIN_);
        ask_handles();
        result = report(static_cast<EpollFile*>(f), events, most);
        if (result != 0)
            break;
        if (deadline == 0 || (deadline != kNever && now_mono() >= deadline)) {
            clear_interest();
            if (deadline == 0 && poll_host_rarely())
                result = report(static_cast<EpollFile*>(f), events, most);
            break;
        }
        if (wait_io(deadline) == Wake::signal) {
            result = -EINTR;
            break;
        }
    }
    clear_interest();
    unref(f);
    return result;
}

} // namespace

void close_all_epoll_items(File* f) {
    while (f->watchers)
        drop_item(f->watchers);
}

// An epoll that watches `f` becomes readable with it, which is an event for epolls that watch that epoll.
void pass_on_event(const File* f) {
    for (EpollItem* item = f->watchers; item; item = item->next_watcher)
        if (File* owner = item->owner; owner->watchers) {
            ++owner->in_events;
            pass_on_event(owner);
        }
}

void collect_interest(File* f, u32 events) {
    if (f->kind == Kind::epoll) {
        for (EpollItem* item = static_cast<EpollFile*>(f)->first; item; item = item->next) {
            if (!item->armed)
                continue;
            u32 wanted = item->events;
            if ((wanted & kEdge) && handle_of(item->file) >= 0) {
                // Events that were reported already would end the wait again and again.
                if (item->seen_in == item->file->in_events)
                    wanted &= ~kIn;
                if (item->seen_out == item->file->out_events)
                    wanted &= ~kOut;
                if (!(wanted & (kIn | kOut)))
                    continue;
            }
            collect_interest(item->file, wanted);
        }
        return;
    }
    const i32 handle = handle_of(f);
    if (handle >= 0 && !(f->kind == Kind::host && always_ready(static_cast<HostFile*>(f))))
        add_interest(handle, events & (POLLIN_ | POLLOUT_ | POLLPRI_ | POLLRDHUP_));
    else
        collect_conn_interest(f, events);
}

i64 sys_epoll_create1(const Args& c) {
    if (static_cast<u32>(c.a[0]) & ~O_CLOEXEC_)
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
    if (target->kind == Kind::own || (target->kind == Kind::host && no_poll(static_cast<HostFile*>(target))))
        return -EPERM; // regular files and folders are always ready
    if (c.a[1] != 2 && (event.events & kExclusive) &&
        (c.a[1] == 3 || target->kind == Kind::epoll ||
         (event.events & ~(kExclusive | kWakeup | kEdge | POLLIN_ | POLLOUT_ | POLLERR_ | POLLHUP_))))
        return -EINVAL;
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
        if (item->events & kExclusive)
            return -EINVAL;
        break;
    default: return -EINVAL;
    }
    item->events = event.events;
    item->data = event.data;
    item->armed = true;
    // A new or changed item reports the events that hold now.
    item->seen_in = target->in_events - 1;
    item->seen_out = target->out_events - 1;
    notify_io();
    return 0;
}

i64 sys_epoll_wait(const Args& c) {
    return epoll_wait_until(static_cast<i32>(c.a[0]), c.a[1], static_cast<i32>(c.a[2]),
                            deadline_ms(static_cast<i64>(c.a[3])));
}

i64 sys_epoll_pwait(const Args& c) {
    i64 error = 0;
    if (!use_temporary_mask(c.a[4], c.a[5], error))
        return error;
    return drop_temporary_mask(sys_epoll_wait(c));
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
    return drop_temporary_mask(epoll_wait_until(static_cast<i32>(c.a[0]), c.a[1], static_cast<i32>(c.a[2]), deadline));
}

} // namespace gk
