// System V message queues.
#include "tinykvm/guest/sysv.hpp"

namespace gk {
namespace {

enum : u32 { kNoError = 010000, kExcept = 020000, kCopy = 040000 };
enum : u32 { kStat = 11, kInfo = 12, kStatAny = 13 };
constexpr u32 kMaxQueues = 128;
constexpr u64 kMaxOfMessage = 8192, kMaxOfQueue = 16384; // MSGMAX, MSGMNB

struct Message {
    Message* next;
    i64 type;
    u64 bytes;
    u8* text() { return reinterpret_cast<u8*>(this + 1); }
};

struct Queue : IpcObject {
    Message* first = nullptr;
    u64 bytes = 0, count = 0, most = kMaxOfQueue;
    i64 sent_at = 0, received_at = 0, changed_at = 0;
    i32 sender = 0, receiver = 0;
    u32 users = 0; // threads that wait on the queue
};
[[gnu::section(".bss.large")]] IpcTable<Queue, kMaxQueues> queues;

// struct msqid64_ds (asm-generic/msgbuf.h).
struct QueueStat {
    IpcPerm perm;
    i64 stime, rtime, ctime;
    u64 bytes, count, most;
    i32 sender, receiver;
    u64 unused[2];
};
static_assert(sizeof(QueueStat) == 120);

void free_message(Message* m) { release(m, sizeof(Message) + m->bytes); }

void free_queue(Queue* queue) {
    while (Message* m = queue->first) {
        queue->first = m->next;
        free_message(m);
    }
    destroy(queue);
}

// Waits on a queue: 0 if the caller is to try again, or -errno.
i64 wait_in(Queue* queue) {
    ++queue->users;
    IpcWaiter waiter{current};
    const IpcWake why = ipc_wait(*queue, waiter, kNever);
    const bool removed = queue->removed;
    if (--queue->users == 0 && removed)
        free_queue(queue);
    return removed ? -kRemoved : why == IpcWake::signal ? -ERESTARTNOHAND : 0;
}

i64 report_status(const Queue& q, u64 at) {
    QueueStat stat{};
    stat.perm = q.perm;
    stat.stime = q.sent_at;
    stat.rtime = q.received_at;
    stat.ctime = q.changed_at;
    stat.bytes = q.bytes;
    stat.count = q.count;
    stat.most = q.most;
    stat.sender = q.sender;
    stat.receiver = q.receiver;
    return put_user(at, stat) ? 0 : -EFAULT;
}

i64 report_limits(bool usage, u64 at) {
    struct {
        i32 pool, map, max, mnb, mni, ssz, tql;
        u16 seg, pad;
    } info{};
    u64 messages = 0, bytes = 0;
    for (const Queue* q : queues.slots) {
        messages += q ? q->count : 0;
        bytes += q ? q->bytes : 0;
    }
    info.pool = usage ? static_cast<i32>(queues.count()) : static_cast<i32>(kMaxQueues * kMaxOfQueue / 1024);
    info.map = usage ? static_cast<i32>(messages) : static_cast<i32>(kMaxOfQueue);
    info.tql = usage ? static_cast<i32>(bytes) : static_cast<i32>(kMaxOfQueue);
    info.max = kMaxOfMessage;
    info.mnb = kMaxOfQueue;
    info.mni = kMaxQueues;
    info.ssz = 16;
    info.seg = 0xffff;
    return put_user(at, info) ? queues.highest() : -EFAULT;
}

// The link to the message that msgrcv(2) chooses, or null.
Message** choose(Queue& queue, i64 type, u32 flags) {
    Message** best = nullptr;
    for (Message** link = &queue.first; *link; link = &(*link)->next) {
        const i64 here = (*link)->type;
        if (type == 0 || (type > 0 && (here == type) != ((flags & kExcept) != 0)))
            return link;
        if (type < 0 && here <= -type && (!best || here < (*best)->type))
            best = link;
    }
    return best;
}

} // namespace

i64 sys_msgget(const Args& c) {
    return queues.get(
        static_cast<i32>(c.a[0]), static_cast<u32>(c.a[1]), [](const Queue&) -> i64 { return 0; },
        [](i64& error) -> Queue* {
            Queue* queue = make<Queue>();
            if (!queue)
                error = -ENOMEM;
            else
                queue->changed_at = ipc_seconds();
            return queue;
        });
}

i64 sys_msgsnd(const Args& c) {
    const auto id = static_cast<i32>(c.a[0]);
    const u64 bytes = c.a[2];
    i64 type;
    if (!get_user(type, c.a[1]))
        return -EFAULT;
    if (bytes > kMaxOfMessage || id < 0 || type < 1)
        return -EINVAL;
    auto* message = static_cast<Message*>(allocate_dirty(sizeof(Message) + bytes));
    if (!message)
        return -ENOMEM;
    *message = {nullptr, type, bytes};
    i64 result = copy_from_user(message->text(), c.a[1] + 8, bytes) ? 0 : -EFAULT;
    while (result == 0) {
        Queue* queue = queues.find(id);
        result = !queue ? -EINVAL : !ipc_permitted(queue->perm, 2) ? -EACCES : 0;
        if (result < 0)
            break;
        if (queue->bytes + bytes > queue->most || queue->count + 1 > queue->most) {
            result = (c.a[3] & kIpcNoWait) ? -EAGAIN : wait_in(queue);
            continue;
        }
        Message** end = &queue->first;
        while (*end)
            end = &(*end)->next;
        *end = message;
        queue->bytes += bytes;
        ++queue->count;
        queue->sent_at = ipc_seconds();
        queue->sender = static_cast<i32>(gk_shared_page.pid);
        ipc_wake(*queue);
        return 0;
    }
    free_message(message);
    return result;
}

i64 sys_msgrcv(const Args& c) {
    const auto id = static_cast<i32>(c.a[0]);
    const u64 room = c.a[2];
    const auto type = static_cast<i64>(c.a[3]);
    const auto flags = static_cast<u32>(c.a[4]);
    if (id < 0 || static_cast<i64>(room) < 0)
        return -EINVAL;
    if (flags & kCopy)
        return -ENOSYS;
    for (;;) {
        Queue* queue = queues.find(id);
        if (!queue)
            return -EINVAL;
        if (!ipc_permitted(queue->perm, 4))
            return -EACCES;
        Message** link = choose(*queue, type, flags);
        if (!link) {
            if (flags & kIpcNoWait)
                return -kNoMessage;
            if (const i64 error = wait_in(queue); error < 0)
                return error;
            continue;
        }
        Message* message = *link;
        if (message->bytes > room && !(flags & kNoError))
            return -kTooBig;
        *link = message->next;
        queue->bytes -= message->bytes;
        --queue->count;
        queue->received_at = ipc_seconds();
        queue->receiver = static_cast<i32>(gk_shared_page.pid);
        ipc_wake(*queue);
        const u64 bytes = message->bytes < room ? message->bytes : room;
        const bool copied = put_user(c.a[1], message->type) && copy_to_user(c.a[1] + 8, message->text(), bytes);
        free_message(message);
        return copied ? static_cast<i64>(bytes) : -EFAULT;
    }
}

i64 sys_msgctl(const Args& c) {
    const auto id = static_cast<i32>(c.a[0]);
    const auto command = static_cast<u32>(c.a[1]);
    if (id < 0 || static_cast<i32>(command) < 0)
        return -EINVAL;
    if (command == kIpcInfo || command == kInfo)
        return report_limits(command == kInfo, c.a[2]);
    const bool by_slot = command == kStat || command == kStatAny;
    if (!by_slot && command > kIpcStat)
        return -EINVAL;
    QueueStat wanted;
    if (command == kIpcSet && !get_user(wanted, c.a[2]))
        return -EFAULT;
    Queue* queue = by_slot ? queues.at(id) : queues.find(id);
    if (!queue)
        return -EINVAL;
    switch (command) {
    case kIpcRemove:
        queues.remove(queue);
        queue->removed = true;
        ipc_wake(*queue);
        if (queue->users == 0)
            free_queue(queue);
        return 0;
    case kIpcSet:
        if (wanted.most > kMaxOfQueue)
            return -EPERM;
        ipc_set(queue->perm, wanted.perm);
        queue->most = wanted.most;
        queue->changed_at = ipc_seconds();
        ipc_wake(*queue);
        return 0;
    default: break;
    }
    if (command != kStatAny && !ipc_permitted(queue->perm, 4))
        return -EACCES;
    const i64 error = report_status(*queue, c.a[2]);
    return error < 0 || !by_slot ? error : queue->id;
}

} // namespace gk
