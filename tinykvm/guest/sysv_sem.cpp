// System V semaphores.
#include "tinykvm/guest/sysv.hpp"

namespace gk {
namespace {

enum : u32 { kGetPid = 11, kGetVal, kGetAll, kGetNcnt, kGetZcnt, kSetVal, kSetAll, kStat, kInfo, kStatAny };
constexpr u32 kMaxSets = 512, kMaxOfSet = 32000, kMaxOperations = 500;
constexpr i32 kMaxValue = 32767;

struct Semaphore {
    u16 value;
    i32 pid; // the last process that changed it
};

struct SemaphoreSet : IpcObject {
    u32 count = 0;
    u32 users = 0; // threads in an operation on the set
    i64 operated_at = 0, changed_at = 0;
    Semaphore* semaphores = nullptr;
};
[[gnu::section(".bss.large")]] IpcTable<SemaphoreSet, kMaxSets> sets;

// struct semid64_ds of x86 (asm/sembuf.h).
struct SetStat {
    IpcPerm perm;
    i64 otime;
    u64 unused1;
    i64 ctime;
    u64 unused2, count, unused[2];
};
static_assert(sizeof(SetStat) == 104);

struct Operation {
    u16 number;
    std::int16_t change;
    std::int16_t flags;
};

void free_set(SemaphoreSet* set) {
    release(set->semaphores, set->count * sizeof(Semaphore));
    destroy(set);
}

SemaphoreSet* create_set(u32 count, i64& error) {
    SemaphoreSet* set = make<SemaphoreSet>();
    if (set)
        set->semaphores = static_cast<Semaphore*>(allocate(count * sizeof(Semaphore)));
    if (!set || !set->semaphores) {
        if (set)
            destroy(set);
        error = -ENOMEM;
        return nullptr;
    }
    set->count = count;
    set->changed_at = ipc_seconds();
    return set;
}

// Performs all operations or none. 0, -ERANGE, or 1 if an operation must wait; `blocking` is then its index.
i64 perform(SemaphoreSet& set, const Operation* operations, u32 count, u32& blocking) {
    u32 done = 0;
    i64 result = 0;
    for (; done < count && result == 0; ++done) {
        const Operation& op = operations[done];
        const i32 value = set.semaphores[op.number].value;
        if (op.change == 0 ? value != 0 : value + op.change < 0) {
            result = 1;
            blocking = done;
            break;
        }
        if (value + op.change > kMaxValue) {
            result = -ERANGE;
            break;
        }
        set.semaphores[op.number].value = static_cast<u16>(value + op.change);
    }
    if (result != 0) {
        while (done-- > 0)
            set.semaphores[operations[done].number].value =
                static_cast<u16>(set.semaphores[operations[done].number].value - operations[done].change);
        return result;
    }
    for (u32 i = 0; i < count; ++i)
        set.semaphores[operations[i].number].pid = static_cast<i32>(gk_shared_page.pid);
    set.operated_at = ipc_seconds();
    return 0;
}

i64 operate(SemaphoreSet& set, const Operation* operations, u32 count, u64 deadline) {
    bool changes = false;
    for (u32 i = 0; i < count; ++i) {
        if (operations[i].number >= set.count)
            return -EFBIG;
        changes |= operations[i].change != 0;
    }
    if (!ipc_permitted(set.perm, changes ? 2 : 4))
        return -EACCES;
    for (;;) {
        u32 blocking = 0;
        const i64 result = perform(set, operations, count, blocking);
        if (result == 0 && changes)
            ipc_wake(set);
        if (result <= 0)
            return result;
        if (static_cast<u32>(operations[blocking].flags) & kIpcNoWait)
            return -EAGAIN;
        IpcWaiter waiter{current, nullptr, operations[blocking].number, operations[blocking].change == 0};
        const IpcWake why = ipc_wait(set, waiter, deadline);
        if (set.removed)
            return -kRemoved;
        if (why == IpcWake::changed)
            continue;
        u32 again = 0; // the set may have changed at the same time
        if (perform(set, operations, count, again) == 0) {
            ipc_wake(set);
            return 0;
        }
        return why == IpcWake::timeout ? -EAGAIN : -EINTR; // never restarted
    }
}

i64 semaphore_operation(const Args& c, u64 deadline) {
    const u64 count = static_cast<u32>(c.a[2]);
    if (count < 1 || static_cast<i32>(c.a[0]) < 0)
        return -EINVAL;
    if (count > kMaxOperations)
        return -kTooBig;
    const u64 bytes = count * sizeof(Operation);
    auto* operations = static_cast<Operation*>(allocate_dirty(bytes));
    if (!operations)
        return -ENOMEM;
    i64 result = -EFAULT;
    if (copy_from_user(operations, c.a[1], bytes)) {
        SemaphoreSet* set = sets.find(static_cast<i32>(c.a[0]));
        result = -EINVAL;
        if (set) {
            ++set->users;
            result = operate(*set, operations, static_cast<u32>(count), deadline);
            if (--set->users == 0 && set->removed)
                free_set(set);
        }
    }
    release(operations, bytes);
    return result;
}

i64 report_status(const SemaphoreSet& set, u64 at) {
    SetStat stat{};
    stat.perm = set.perm;
    stat.otime = set.operated_at;
    stat.ctime = set.changed_at;
    stat.count = set.count;
    return put_user(at, stat) ? 0 : -EFAULT;
}

i64 report_limits(bool usage, u64 at) {
    i32 semaphores = 0;
    for (const SemaphoreSet* set : sets.slots)
        semaphores += set ? static_cast<i32>(set->count) : 0;
    const i32 limits[10] = {static_cast<i32>(kMaxSets * kMaxOfSet),
                            static_cast<i32>(kMaxSets),
                            static_cast<i32>(kMaxSets * kMaxOfSet),
                            static_cast<i32>(kMaxSets * kMaxOfSet),
                            static_cast<i32>(kMaxOfSet),
                            static_cast<i32>(kMaxOperations),
                            static_cast<i32>(kMaxOperations),
                            usage ? static_cast<i32>(sets.count()) : 20,
                            kMaxValue,
                            usage ? semaphores : kMaxValue};
    return put_user(at, limits) ? sets.highest() : -EFAULT;
}

i64 one_semaphore(SemaphoreSet& set, u32 command, u32 number, u64 argument) {
    if (number >= set.count)
        return -EINVAL;
    Semaphore& semaphore = set.semaphores[number];
    i64 waiting = 0;
    switch (command) {
    case kGetVal: return semaphore.value;
    case kGetPid: return semaphore.pid;
    case kGetNcnt:
    case kGetZcnt:
        for (const IpcWaiter* waiter = set.waiters; waiter; waiter = waiter->next)
            waiting += waiter->number == number && waiter->for_zero == (command == kGetZcnt);
        return waiting;
    default: break;
    }
    const auto value = static_cast<i32>(argument);
    if (value < 0 || value > kMaxValue)
        return -ERANGE;
    semaphore.value = static_cast<u16>(value);
    semaphore.pid = static_cast<i32>(gk_shared_page.pid);
    set.changed_at = ipc_seconds();
    ipc_wake(set);
    return 0;
}

i64 all_semaphores(SemaphoreSet& set, bool change, u64 at) {
    for (u32 pass = 0; pass < (change ? 2 : 1); ++pass) // the first pass checks all values
        for (u32 i = 0; i < set.count; ++i) {
            u16 value = set.semaphores[i].value;
            if (!change && !put_user(at + i * 2, value))
                return -EFAULT;
            if (change && !get_user(value, at + i * 2))
                return -EFAULT;
            if (change && value > kMaxValue)
                return -ERANGE;
            if (pass == 1)
                set.semaphores[i] = {value, static_cast<i32>(gk_shared_page.pid)};
        }
    if (change) {
        set.changed_at = ipc_seconds();
        ipc_wake(set);
    }
    return 0;
}

} // namespace

i64 sys_semget(const Args& c) {
    const auto count = static_cast<i32>(c.a[1]);
    if (count < 0 || count > static_cast<i32>(kMaxOfSet))
        return -EINVAL;
    return sets.get(
        static_cast<i32>(c.a[0]), static_cast<u32>(c.a[2]),
        [&](const SemaphoreSet& set) -> i64 { return static_cast<u32>(count) > set.count ? -EINVAL : 0; },
        [&](i64& error) -> SemaphoreSet* {
            if (count == 0) {
                error = -EINVAL;
                return nullptr;
            }
            return create_set(static_cast<u32>(count), error);
        });
}

i64 sys_semop(const Args& c) { return semaphore_operation(c, kNever); }

i64 sys_semtimedop(const Args& c) {
    u64 deadline = kNever;
    if (c.a[3] != 0) {
        Timespec timeout;
        if (!get_user(timeout, c.a[3]))
            return -EFAULT;
        if (!valid(timeout))
            return -EINVAL;
        deadline = deadline_of(1, false, timeout);
    }
    return semaphore_operation(c, deadline);
}

i64 sys_semctl(const Args& c) {
    const auto id = static_cast<i32>(c.a[0]);
    const auto command = static_cast<u32>(c.a[2]);
    if (id < 0)
        return -EINVAL;
    if (command == kIpcInfo || command == kInfo)
        return report_limits(command == kInfo, c.a[3]);
    const bool by_slot = command == kStat || command == kStatAny;
    SemaphoreSet* set = by_slot ? sets.at(id) : sets.find(id);
    SetStat wanted;
    if (command == kIpcSet && !get_user(wanted, c.a[3]))
        return -EFAULT;
    const bool known = command <= kIpcStat || (command >= kGetPid && command <= kStatAny);
    if (!set || !known)
        return -EINVAL;
    const bool changes = command == kSetVal || command == kSetAll;
    if (command >= kGetPid && command != kStatAny && !ipc_permitted(set->perm, changes ? 2 : 4))
        return -EACCES;
    switch (command) {
    case kIpcStat:
        if (!ipc_permitted(set->perm, 4))
            return -EACCES;
        return report_status(*set, c.a[3]);
    case kStat:
    case kStatAny: {
        const i64 error = report_status(*set, c.a[3]);
        return error < 0 ? error : set->id;
    }
    case kIpcSet:
        ipc_set(set->perm, wanted.perm);
        set->changed_at = ipc_seconds();
        return 0;
    case kIpcRemove:
        sets.remove(set);
        set->removed = true;
        ipc_wake(*set);
        if (set->users == 0)
            free_set(set);
        return 0;
    case kGetAll:
    case kSetAll: return all_semaphores(*set, command == kSetAll, c.a[3]);
    default: return one_semaphore(*set, command, static_cast<u32>(c.a[1]), c.a[3]);
    }
}

} // namespace gk
