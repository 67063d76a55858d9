// Locks of the machine's own files: flock(2), and the fcntl(2) locks of the process or of an open file description.
#include "tinykvm/guest/own_files.hpp"

namespace gk::own {

struct Lock {
    Lock* next;
    const OwnFile* owner; // null: the process
    bool whole;           // a flock(2) lock, independent of record locks
    bool exclusive;
    i64 begin, end; // [begin, end); INT64_MAX: to the end of the file
};

namespace {

struct Wanted {
    const OwnFile* owner;
    bool whole, exclusive, unlock;
    i64 begin, end;
};

bool overlaps(const Lock* l, const Wanted& w) { return l->whole == w.whole && l->begin < w.end && w.begin < l->end; }

const Lock* conflict(const Node* n, const Wanted& w) {
    for (const Lock* l = n->locks; l; l = l->next)
        if (l->owner != w.owner && overlaps(l, w) && (l->exclusive || w.exclusive))
            return l;
    return nullptr;
}

// Removes [begin, end) from the owner's locks. If a lock is split in two, uses up `spare`.
void cut_out(Node* n, const Wanted& w, Lock*& spare) {
    for (Lock** at = &n->locks; *at;) {
        Lock* l = *at;
        if (l->owner != w.owner || !overlaps(l, w)) {
            at = &l->next;
            continue;
        }
        if (l->begin < w.begin && l->end > w.end) {
            *spare = *l;
            spare->begin = w.end;
            l->end = w.begin;
            l->next = spare;
            spare = nullptr;
            return;
        }
        if (l->begin >= w.begin && l->end <= w.end) {
            *at = l->next;
            destroy(l);
            continue;
        }
        if (l->begin < w.begin)
            l->end = w.begin;
        else
            l->begin = w.end;
        at = &l->next;
    }
}

i64 apply(Node* n, const Wanted& w) {
    Lock* spare = make<Lock>();
    Lock* fresh = w.unlock ? nullptr : make<Lock>();
    i64 result = spare && (fresh || w.unlock) ? 0 : -37; // ENOLCK
    if (result == 0) {
        cut_out(n, w, spare);
        if (fresh) {
            *fresh = {n->locks, w.owner, w.whole, w.exclusive, w.begin, w.end};
            n->locks = fresh;
            fresh = nullptr;
        }
        notify_io(); // waiters try again
    }
    if (spare)
        destroy(spare);
    if (fresh)
        destroy(fresh);
    return result;
}

i64 take(OwnFile* f, const Wanted& w, bool wait) {
    Node* n = f->node;
    ref(f);
    i64 result = 0;
    while (!w.unlock && conflict(n, w)) {
        if (!wait)
            result = -EAGAIN;
        else if (wait_io(kNever) == Wake::signal)
            result = -ERESTARTSYS;
        if (result < 0)
            break;
    }
    if (result == 0)
        result = apply(n, w);
    unref(f);
    return result;
}

} // namespace

i64 flock(OwnFile* f, u32 operation) {
    constexpr u32 kShared = 1, kExclusive = 2, kNonBlocking = 4, kUnlock = 8;
    const u32 what = operation & ~kNonBlocking;
    if (what != kShared && what != kExclusive && what != kUnlock)
        return -EINVAL;
    const Wanted w{f, true, what == kExclusive, what == kUnlock, 0, INT64_MAX};
    if (!w.unlock && conflict(f->node, w)) { // converting a lock releases the old one first (flock(2))
        Wanted old = w;
        old.unlock = true;
        if (const i64 error = apply(f->node, old); error < 0)
            return error;
    }
    return take(f, w, !(operation & kNonBlocking));
}

i64 record_lock(OwnFile* f, u32 command, u64 at) {
    struct {
        std::int16_t type, whence;
        u32 pad;
        i64 start, length;
        i32 pid;
        u32 pad2;
    } lock;
    if (!get_user(lock, at))
        return -EFAULT;
    const bool asking = command == 5 || command == 36, of_file = command >= 36, wait = command == 7 || command == 38;
    if (of_file && lock.pid != 0)
        return -EINVAL;
    if (lock.type < 0 || lock.type > 2 || (asking && lock.type == 2))
        return -EINVAL;
    const i64 base = lock.whence == 0   ? 0
                     : lock.whence == 1 ? static_cast<i64>(f->offset)
                     : lock.whence == 2 ? f->node->size()
                                        : -1;
    if (base < 0)
        return -EINVAL;
    Wanted w{of_file ? f : nullptr, false, lock.type == 1, lock.type == 2, 0, 0};
    if (__builtin_add_overflow(base, lock.start, &w.begin))
        return -EOVERFLOW;
    if (lock.length == 0)
        w.end = INT64_MAX;
    else if (__builtin_add_overflow(w.begin, lock.length, &w.end))
        return -EOVERFLOW;
    if (lock.length < 0) {
        const i64 end = w.begin;
        w.begin = w.end;
        w.end = end;
    }
    if (w.begin < 0)
        return -EINVAL;
    if (asking) {
        if (const Lock* l = conflict(f->node, w)) {
            lock.type = l->exclusive ? 1 : 0;
            lock.whence = 0;
            lock.start = l->begin;
            lock.length = l->end == INT64_MAX ? 0 : l->end - l->begin;
            lock.pid = l->owner ? -1 : static_cast<i32>(gk_shared_page.pid);
        } else {
            lock.type = 2;
        }
        return put_user(at, lock) ? 0 : -EFAULT;
    }
    const u32 mode = f->flags & O_ACCMODE_;
    if ((lock.type == 0 && mode == O_WRONLY_) || (lock.type == 1 && mode == 0))
        return -EBADF;
    return take(f, w, wait);
}

// Drops the locks of an open file that is closed. The process's locks go too: on Linux, when any descriptor of the file
// is closed (fcntl(2)); here, when any open file description of it is closed.
void drop_locks(OwnFile* f) {
    bool any = false;
    for (Lock** at = &f->node->locks; *at;) {
        Lock* l = *at;
        if (l->owner == f || !l->owner) {
            *at = l->next;
            destroy(l);
            any = true;
        } else {
            at = &l->next;
        }
    }
    if (any)
        notify_io();
}

void free_locks(Node* n) {
    while (Lock* l = n->locks) {
        n->locks = l->next;
        destroy(l);
    }
}

} // namespace gk::own
