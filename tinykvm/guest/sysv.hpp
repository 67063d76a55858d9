// Shared by System V shared memory, semaphores and message queues: keys, identifiers, rights and waiting. The objects
// exist in this machine only.
#pragma once
#include "tinykvm/guest/calls.hpp"

namespace gk {

enum IpcErrno : i64 {
    kTooBig = 7 /*E2BIG*/,
    kNoSpace = 28 /*ENOSPC*/,
    kNoMessage = 42 /*ENOMSG*/,
    kRemoved = 43 /*EIDRM*/
};
enum IpcFlag : u32 { kIpcCreate = 01000, kIpcExclusive = 02000, kIpcNoWait = 04000 };
enum IpcCommand : u32 { kIpcRemove = 0, kIpcSet = 1, kIpcStat = 2, kIpcInfo = 3 };

// struct ipc64_perm (asm-generic/ipcbuf.h).
struct IpcPerm {
    i32 key = 0;
    u32 uid = 0, gid = 0, cuid = 0, cgid = 0, mode = 0;
    u16 seq = 0, pad = 0;
    u32 pad2 = 0;
    u64 unused[2] = {};
};
static_assert(sizeof(IpcPerm) == 48);

// A thread that waits for an object to change. Lives on the thread's stack.
struct IpcWaiter {
    Thread* thread;
    IpcWaiter* next = nullptr;
    u32 number = 0; // index of the semaphore it waits for
    bool for_zero = false;
};

struct IpcObject {
    IpcPerm perm;
    i32 id = 0;
    bool removed = false; // IPC_RMID: only threads that still wait refer to it
    IpcWaiter* waiters = nullptr;
};

// Called after munmap, or after a new mapping replaced the range: shared memory segments are no longer attached there.
void segments_unmapped(u64 at, u64 bytes);
// Called after mremap has moved or resized a mapping.
void segments_moved(u64 from, u64 old_bytes, u64 to, u64 new_bytes);

i64 ipc_seconds();
// Whether the program has the rights in `wanted`, the low three bits of a mode (4 read, 2 write).
bool ipc_permitted(const IpcPerm&, u32 wanted);
void ipc_fill(IpcPerm&, i32 key, u32 flags);
// The part of IPC_SET that all kinds share.
void ipc_set(IpcPerm&, const IpcPerm& wanted);
void ipc_wake(IpcObject&);
enum class IpcWake { changed, timeout, signal };
// Waits for ipc_wake(), the deadline or a signal. The object may be `removed` afterwards.
IpcWake ipc_wait(IpcObject&, IpcWaiter&, u64 deadline);

// The objects of one kind, by slot. An id is a sequence number and a slot.
template <class T, u32 kMax>
struct IpcTable {
    T* slots[kMax] = {};
    u16 seq = 0;

    T* find(i32 id) const {
        const u32 slot = static_cast<u32>(id) & 0x7fff;
        return id >= 0 && slot < kMax && slots[slot] && slots[slot]->id == id ? slots[slot] : nullptr;
    }
    T* at(i32 slot) const { return slot >= 0 && static_cast<u32>(slot) < kMax ? slots[slot] : nullptr; }
    i32 highest() const {
        i32 slot = kMax - 1;
        while (slot > 0 && !slots[slot])
            --slot;
        return slot;
    }
    u32 count() const {
        u32 used = 0;
        for (const T* object : slots)
            used += object != nullptr;
        return used;
    }
    // shmget, semget and msgget. `fits(object)` checks an existing object and returns 0 or -errno. `create(error)`
    // returns a new object, or null with `error` set.
    template <class Fits, class Create>
    i64 get(i32 key, u32 flags, Fits fits, Create create) {
        u32 room = kMax;
        for (u32 i = kMax; i-- > 0;) {
            if (!slots[i]) {
                room = i;
                continue;
            }
            if (key == 0 || slots[i]->perm.key != key)
                continue;
            if ((flags & kIpcCreate) && (flags & kIpcExclusive))
                return -EEXIST;
            if (const i64 error = fits(*slots[i]); error < 0)
                return error;
            return ipc_permitted(slots[i]->perm, (flags >> 6 | flags >> 3 | flags) & 7) ? slots[i]->id : -EACCES;
        }
        if (key != 0 && !(flags & kIpcCreate))
            return -ENOENT;
        if (room == kMax)
            return -kNoSpace;
        i64 error = 0;
        T* object = create(error);
        if (!object)
            return error;
        ipc_fill(object->perm, key, flags);
        object->perm.seq = seq;
        object->id = static_cast<i32>(u32{seq} << 15 | room);
        seq = (seq + 1) & 0x7fff;
        slots[room] = object;
        return object->id;
    }
    void remove(T* object) { slots[static_cast<u32>(object->id) & 0x7fff] = nullptr; }
};

} // namespace gk
