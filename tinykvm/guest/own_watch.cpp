// inotify for the machine's own files. Host files cannot be watched.
#include "tinykvm/guest/path_arg.hpp"

namespace gk::own {

namespace {

struct Event { // struct inotify_event, with the name after it
    Event* next;
    i32 wd;
    u32 mask, cookie, length; // length of the name with its padding
    char name[1];
};
constexpr u64 kHead = 16;
constexpr u32 kMaxEvents = 16384, kMaxWatches = 65536; // of the order of Linux's max_queued_events, max_user_watches

struct Inotify : File {
    Event *first = nullptr, *last = nullptr;
    u32 events = 0;
    u64 bytes = 0;
    Watch* watches = nullptr;
    i32 last_wd = 0;
    bool overflowed = false;
};
u32 watch_count;

} // namespace

struct Watch {
    Watch *next_of_node, *next_of_owner;
    Inotify* owner;
    Node* node; // the watch holds a reference
    u32 mask;
    i32 wd;
};

namespace {

constexpr u32 kOverflow = 0x4000, kOnce = 0x80000000, kAdd = 0x20000000, kCreateOnly = 0x10000000,
              kOnlyFolder = 0x1000000, kDontFollow = 0x2000000, kExcludeUnlinked = 0x4000000, kAllEvents = 0xfff;

u64 event_bytes(u32 length) { return sizeof(Event) + length; }

void queue(Inotify* to, i32 wd, u32 mask, u32 cookie, const char* name, u32 length) {
    const u32 padded = length ? (length + 1 + 15) & ~15u : 0;
    // Merge an event that is identical to the previous one.
    if (const Event* e = to->last; e && e->wd == wd && e->mask == mask && e->cookie == cookie && e->length == padded) {
        u32 i = 0;
        while (i < length && e->name[i] == name[i])
            ++i;
        if (i == length && (!length || e->name[i] == 0))
            return;
    }
    if (to->events >= kMaxEvents) {
        if (to->overflowed)
            return;
        to->overflowed = true;
        wd = -1;
        mask = kOverflow;
    }
    const u32 bytes = mask == kOverflow ? 0 : padded;
    auto* e = static_cast<Event*>(allocate(event_bytes(bytes)));
    if (!e)
        return;
    e->wd = wd;
    e->mask = mask;
    e->cookie = bytes ? cookie : mask == kOverflow ? 0 : cookie;
    e->length = bytes;
    if (bytes)
        memcpy(e->name, name, length);
    (to->last ? to->last->next : to->first) = e;
    to->last = e;
    ++to->events;
    to->bytes += kHead + bytes;
    event_in(to);
}

void drop_event(Inotify* from) {
    Event* e = from->first;
    from->first = e->next;
    if (!from->first)
        from->last = nullptr;
    --from->events;
    from->bytes -= kHead + e->length;
    if (e->mask == kOverflow)
        from->overflowed = false;
    release(e, event_bytes(e->length));
}

void unlink_watch(Watch* w) {
    Watch** at = &w->node->watches;
    while (*at != w)
        at = &(*at)->next_of_node;
    *at = w->next_of_node;
    at = &w->owner->watches;
    while (*at != w)
        at = &(*at)->next_of_owner;
    *at = w->next_of_owner;
    --watch_count;
}

void end_watch(Watch* w, bool report) {
    unlink_watch(w);
    if (report)
        queue(w->owner, w->wd, kNoteIgnored, 0, "", 0);
    Node* n = w->node;
    destroy(w);
    drop(n);
}

void report_event(Node* n, u32 what, u32 cookie, const char* name, u32 length) {
    for (Watch *w = n->watches, *next; w; w = next) {
        next = w->next_of_node;
        if (!(w->mask & what & kAllEvents))
            continue;
        queue(w->owner, w->wd, what, cookie, name, length);
        if (w->mask & kOnce)
            end_watch(w, true);
    }
}

i64 watch_read(File* f, Cursor& to, i64) {
    auto* i = static_cast<Inotify*>(f);
    while (!i->first) {
        if (nonblocking(f))
            return -EAGAIN;
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
    u64 done = 0;
    while (const Event* e = i->first) {
        if (to.left < kHead + e->length)
            return done ? static_cast<i64>(done) : -EINVAL;
        const struct {
            i32 wd;
            u32 mask, cookie, length;
        } head{e->wd, e->mask, e->cookie, e->length};
        if (to.put(&head, kHead) != static_cast<i64>(kHead) ||
            (e->length && to.put(e->name, e->length) != static_cast<i64>(e->length)))
            return done ? static_cast<i64>(done) : -EFAULT;
        done += kHead + e->length;
        drop_event(i);
    }
    return static_cast<i64>(done);
}

i64 watch_write(File*, Cursor&, i64) { return -EBADF; }
u32 watch_poll(File* f) { return static_cast<Inotify*>(f)->first ? POLLIN_ | POLLRDNORM_ : 0u; }

void watch_close(File* f) {
    auto* i = static_cast<Inotify*>(f);
    while (i->watches)
        end_watch(i->watches, false);
    while (i->first)
        drop_event(i);
    destroy(i);
}

const FileOps watch_ops{watch_read, watch_write, watch_poll, watch_close, "anon_inode:inotify"};

Inotify* inotify_of(u64 fd, i64& error) {
    File* f = file_of(static_cast<i32>(fd));
    error = !f ? -EBADF : f->ops != &watch_ops ? -EINVAL : 0;
    return error < 0 ? nullptr : static_cast<Inotify*>(f);
}

i64 add_watch(Inotify* i, Node* n, u32 mask) {
    if ((mask & kOnlyFolder) && !n->is_folder())
        return -ENOTDIR;
    if (!permitted(n, 4))
        return -EACCES;
    for (Watch* w = n->watches; w; w = w->next_of_node)
        if (w->owner == i) {
            if (mask & kCreateOnly)
                return -EEXIST;
            const u32 kept = mask & (kAllEvents | kOnce | kExcludeUnlinked);
            w->mask = (mask & kAdd) ? w->mask | kept : kept;
            return w->wd;
        }
    if (watch_count >= kMaxWatches)
        return -ENOSPC;
    auto* w = make<Watch>();
    if (!w)
        return -ENOMEM;
    ++watch_count;
    *w = {n->watches, i->watches, i, n, mask & (kAllEvents | kOnce | kExcludeUnlinked), ++i->last_wd};
    n->watches = i->watches = w;
    keep(n);
    return w->wd;
}

} // namespace

void note_name(Node* folder, const char* name, u32 length, const Node* n, u32 what, u32 cookie) {
    if (folder->watches)
        report_event(folder, what | (n->is_folder() ? u32{kNoteFolder} : 0u), cookie, name, length);
}

void note(Node* n, u32 what) {
    const Entry* e = n->name;
    const u32 folder = n->is_folder() ? u32{kNoteFolder} : 0u;
    const u32 of_self = kNoteDeleteSelf | kNoteMoveSelf;
    if (e && e->folder->watches && !(what & of_self))
        report_event(e->folder, what | folder, 0, e->name, e->length);
    if (n->watches)
        report_event(n, what | ((what & of_self) ? 0 : folder), 0, "", 0);
    if ((what & kNoteDeleteSelf))
        while (n->watches)
            end_watch(n->watches, true);
}

void note_links(Node* n) {
    if (n->watches)
        report_event(n, kNoteAttributes | (n->is_folder() ? u32{kNoteFolder} : 0u), 0, "", 0);
}

u64 watch_bytes_ready(const File* f) { return f->ops == &watch_ops ? static_cast<const Inotify*>(f)->bytes : 0; }

} // namespace gk::own

namespace gk {

i64 sys_inotify_init1(const Args& c) {
    const u32 flags = static_cast<u32>(c.a[0]);
    if (flags & ~(O_NONBLOCK_ | O_CLOEXEC_))
        return -EINVAL;
    auto* i = make<own::Inotify>();
    if (!i)
        return -ENOMEM;
    i->ops = &own::watch_ops;
    i->kind = Kind::event;
    i->flags = flags & O_NONBLOCK_;
    return install_or_release(i, (flags & O_CLOEXEC_) != 0);
}

i64 sys_inotify_init(const Args& c) {
    Args d = c;
    d.a[0] = 0;
    return sys_inotify_init1(d);
}

i64 sys_inotify_add_watch(const Args& c) {
    const u32 mask = static_cast<u32>(c.a[2]);
    constexpr u32 kKnown = own::kAllEvents | own::kOnce | own::kAdd | own::kCreateOnly | own::kOnlyFolder |
                           own::kDontFollow | own::kExcludeUnlinked | own::kNoteFolder | own::kNoteIgnored |
                           own::kOverflow | 0x2000;
    if (!(mask & kKnown) || (mask & (own::kAdd | own::kCreateOnly)) == (own::kAdd | own::kCreateOnly))
        return -EINVAL;
    i64 error;
    own::Inotify* i = own::inotify_of(c.a[0], error);
    if (!i)
        return error;
    // For a host file the answer is ENOSPC, as if the limit of watches was reached: programs then fall back to polling.
    const auto host = [&](u64 handle, u64 path) {
        constexpr u32 kStat = 262;
        u8 stat[144];
        const i64 there = host_call(kStat, handle, path, address(stat), 0);
        return there < 0 ? there : -ENOSPC;
    };
    return with_path(kAtCwd, c.a[1], !(mask & own::kDontFollow), false, host, [&](own::Place& place) {
        if (place.error < 0)
            return place.error;
        return place.node ? own::add_watch(i, place.node, mask) : i64{-ENOENT};
    });
}

i64 sys_inotify_rm_watch(const Args& c) {
    i64 error;
    own::Inotify* i = own::inotify_of(c.a[0], error);
    if (!i)
        return error;
    for (own::Watch* w = i->watches; w; w = w->next_of_owner)
        if (w->wd == static_cast<i32>(c.a[1])) {
            own::end_watch(w, true);
            return 0;
        }
    return -EINVAL;
}

} // namespace gk
