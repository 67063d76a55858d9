// futex(2). Each hash bucket has one list of waiters, in order of arrival.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

enum : u32 { kWait = 0, kWake = 1, kRequeue = 3, kCmpRequeue = 4, kWakeOp = 5, kWaitBitset = 9, kWakeBitset = 10 };
constexpr u32 kPrivate = 128, kRealtime = 256, kCommand = 0x7f;
u64 word_of(u64 key) { return key & ~kSharedKey; }
constexpr u32 kBuckets = 64;

struct Bucket {
    Thread* head;
    Thread* tail;
};
[[gnu::section(".bss.large")]] Bucket buckets[kBuckets];

Bucket& bucket_of(u64 address) { return buckets[(address >> 2) * 0x9e3779b97f4a7c15ull >> 58]; }

void enqueue(Thread* t) {
    Bucket& b = bucket_of(t->futex_key);
    t->futex_next = nullptr;
    if (b.tail)
        b.tail->futex_next = t;
    else
        b.head = t;
    b.tail = t;
}

void dequeue(Thread* t) {
    Bucket& b = bucket_of(t->futex_key);
    Thread* previous = nullptr;
    for (Thread* here = b.head; here; previous = here, here = here->futex_next) {
        if (here != t)
            continue;
        (previous ? previous->futex_next : b.head) = t->futex_next;
        if (b.tail == t)
            b.tail = previous;
        t->futex_next = nullptr;
        return;
    }
}

i64 wait(u64 at, u32 expected, u32 bits, u64 deadline) {
    if (bits == 0)
        return -EINVAL;
    u32 value;
    if (!get_user(value, word_of(at)))
        return -EFAULT;
    if (value != expected)
        return -EAGAIN;
    if (has_passed(deadline))
        return -ETIMEDOUT;
    current->futex_key = at;
    current->futex_bits = bits;
    current->futex_woken = false;
    enqueue(current);
    bool late = false;
    // The thread may have been woken for a signal that another thread then took.
    while (!current->futex_woken && !late && !signal_pending(current)) {
        block(deadline);
        late = current->timed_out;
    }
    if (current->futex_woken)
        return 0;
    dequeue(current);
    current->futex_key = 0;
    if (late)
        return -ETIMEDOUT;
    // A restart with a timeout would begin the whole timeout again (Linux: ERESTART_RESTARTBLOCK).
    return deadline == kNever ? -ERESTARTSYS : -EINTR;
}

i64 requeue(u64 from, u32 wake_count, u32 move_count, u64 to) {
    if (static_cast<i32>(wake_count) < 0 || static_cast<i32>(move_count) < 0)
        return -EINVAL;
    const i64 woken = wake_count ? futex_wake(from, wake_count, ~0u) : 0;
    i64 moved = 0;
    Bucket& b = bucket_of(from);
    for (Thread* t = b.head; t && moved < move_count;) {
        Thread* next = t->futex_next;
        if (t->futex_key == from) {
            dequeue(t);
            t->futex_key = to;
            enqueue(t);
            ++moved;
        }
        t = next;
        if (from == to)
            break;
    }
    return woken + moved;
}

i64 wake_op(u64 first, u32 wake_first, u32 wake_second, u64 second, u32 op) {
    u32 old;
    if (!get_user(old, word_of(second)))
        return -EFAULT;
    const auto extended = [](u32 bits) { return static_cast<u32>(static_cast<i32>(bits << 20) >> 20); };
    u32 operand = extended((op >> 12) & 0xfff);
    if (op & 0x80000000u)
        operand = u32{1} << (operand & 31);
    const u32 compare = extended(op & 0xfff);
    u32 value = old;
    switch ((op >> 28) & 7) {
    case 0: value = operand; break;
    case 1: value = old + operand; break;
    case 2: value = old | operand; break;
    case 3: value = old & ~operand; break;
    case 4: value = old ^ operand; break;
    default: return -ENOSYS;
    }
    if (!put_user(word_of(second), value))
        return -EFAULT;
    bool hit = false;
    switch ((op >> 24) & 15) {
    case 0: hit = old == compare; break;
    case 1: hit = old != compare; break;
    case 2: hit = static_cast<i32>(old) < static_cast<i32>(compare); break;
    case 3: hit = static_cast<i32>(old) <= static_cast<i32>(compare); break;
    case 4: hit = static_cast<i32>(old) > static_cast<i32>(compare); break;
    case 5: hit = static_cast<i32>(old) >= static_cast<i32>(compare); break;
    default: return -ENOSYS;
    }
    i64 woken = futex_wake(first, wake_first, ~0u);
    if (hit)
        woken += futex_wake(second, wake_second, ~0u);
    return woken;
}

} // namespace

i64 futex_wake(u64 key, u32 count, u32 bits) {
    i64 woken = 0;
    const i64 most = static_cast<i32>(count) > 0 ? count : 1; // Linux wakes one before it checks the count
    for (Thread* t = bucket_of(key).head; t && woken < most;) {
        Thread* next = t->futex_next;
        if (t->futex_key == key && (t->futex_bits & bits)) {
            dequeue(t);
            t->futex_key = 0;
            t->futex_woken = true;
            make_runnable(t);
            ++woken;
        }
        t = next;
    }
    return woken;
}

i64 sys_futex(const Args& c) {
    const u64 at = c.a[0];
    const u32 op = static_cast<u32>(c.a[1]);
    const u32 value = static_cast<u32>(c.a[2]);
    const u32 command = op & kCommand;
    const u64 kind = op & kPrivate ? 0 : kSharedKey;
    if (at & 3)
        return -EINVAL;
    if (!user_ok(at, 4))
        return -EFAULT;
    const bool two = command == kRequeue || command == kCmpRequeue || command == kWakeOp;
    if (two && (c.a[4] & 3))
        return -EINVAL;
    const u64 key = at | kind, other = c.a[4] | kind;
    switch (command) {
    case kWait:
    case kWaitBitset: {
        u64 deadline = kNever;
        if (c.a[3] != 0) {
            Timespec t;
            if (!get_user(t, c.a[3]))
                return -EFAULT;
            if (!valid(t))
                return -EINVAL;
            // The timeout of WAIT is relative. That of WAIT_BITSET is absolute, on the monotonic or real-time clock.
            deadline = deadline_of((op & kRealtime) ? 0 : 1, command == kWaitBitset, t);
        }
        return wait(key, value, command == kWait ? ~0u : static_cast<u32>(c.a[5]), deadline);
    }
    case kWake: return futex_wake(key, value, ~0u);
    case kWakeBitset: return c.a[5] ? futex_wake(key, value, static_cast<u32>(c.a[5])) : -EINVAL;
    case kCmpRequeue: {
        u32 now;
        if (!get_user(now, at))
            return -EFAULT;
        if (now != static_cast<u32>(c.a[5]))
            return -EAGAIN;
        return requeue(key, value, static_cast<u32>(c.a[3]), other);
    }
    case kRequeue: return requeue(key, value, static_cast<u32>(c.a[3]), other);
    case kWakeOp: return wake_op(key, value, static_cast<u32>(c.a[3]), other, static_cast<u32>(c.a[5]));
    default: return -ENOSYS; // priority-inheritance futexes are not supported
    }
}

// Walks the robust list of a thread that exits (Documentation/locking/robust-futex-ABI.rst), and marks the locks it
// held with FUTEX_OWNER_DIED.
void robust_exit(Thread* t) {
    struct {
        u64 next;
        i64 offset;
        u64 pending;
    } head;
    if (t->robust_list == 0 || !get_user(head, t->robust_list))
        return;
    const auto give_up = [&](u64 entry) {
        const u64 at = entry + static_cast<u64>(head.offset);
        u32 word;
        if ((at & 3) || !get_user(word, at) || (word & 0x3fffffff) != t->tid)
            return;
        put_user(at, (word & 0x80000000u) | 0x40000000u);
        if (word & 0x80000000u)
            futex_wake(at | kSharedKey, 1, ~0u);
    };
    u64 entry = head.next;
    for (u32 i = 0; i < 2048 && entry != t->robust_list && entry != 0; ++i) {
        u64 next;
        if (!get_user(next, entry & ~u64{1}))
            break;
        give_up(entry & ~u64{1});
        entry = next;
    }
    if (head.pending) {
        give_up(head.pending & ~u64{1});
        // The thread may have exited while it took or released this lock: wake a waiter, which tries again.
        const u64 at = (head.pending & ~u64{1}) + static_cast<u64>(head.offset);
        u32 word;
        if ((at & 3) == 0 && get_user(word, at) && word == 0)
            futex_wake(at | kSharedKey, 1, ~0u);
    }
}

} // namespace gk
