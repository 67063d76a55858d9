#include "tinykvm/guest/sysv.hpp"

namespace gk {

i64 ipc_seconds() { return static_cast<i64>(now_real() / 1'000'000'000); }

// ipc/util.c, ipcperms. There is no CAP_IPC_OWNER here; CAP_DAC_OVERRIDE takes its place.
bool ipc_permitted(const IpcPerm& perm, u32 wanted) {
    const Credentials& who = current->ids;
    const bool owns = who.user.effective == perm.uid || who.user.effective == perm.cuid;
    const u32 shift = owns ? 6 : who.in_group(perm.gid) || who.in_group(perm.cgid) ? 3 : 0;
    return who.may(kCapDacOverride) || (wanted & ~(perm.mode >> shift) & 7) == 0;
}

void ipc_fill(IpcPerm& perm, i32 key, u32 flags) {
    perm.key = key;
    perm.mode = flags & 0777;
    perm.uid = perm.cuid = current->ids.user.effective;
    perm.gid = perm.cgid = current->ids.group.effective;
}

void ipc_set(IpcPerm& perm, const IpcPerm& wanted) {
    perm.uid = wanted.uid;
    perm.gid = wanted.gid;
    perm.mode = (perm.mode & ~u32{0777}) | (wanted.mode & 0777);
}

void ipc_wake(IpcObject& object) {
    for (IpcWaiter* waiter = object.waiters; waiter; waiter = waiter->next)
        make_runnable(waiter->thread);
}

IpcWake ipc_wait(IpcObject& object, IpcWaiter& waiter, u64 deadline) {
    waiter.thread = current;
    IpcWaiter** end = &object.waiters; // waiters are woken in order of arrival
    while (*end)
        end = &(*end)->next;
    waiter.next = nullptr;
    *end = &waiter;
    block(deadline);
    const bool late = current->timed_out;
    for (IpcWaiter** link = &object.waiters; *link; link = &(*link)->next)
        if (*link == &waiter) {
            *link = waiter.next;
            break;
        }
    return late ? IpcWake::timeout : signal_pending(current) ? IpcWake::signal : IpcWake::changed;
}

} // namespace gk
