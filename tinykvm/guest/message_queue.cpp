// POSIX message queues (ipc/mqueue.c). Their names and messages exist only in this machine's memory, so snapshot and
// reset cover them.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/limits.hpp"
#include "tinykvm/guest/signal.hpp"
#include "tinykvm/guest/timers.hpp"
#include "tinykvm/guest/transfer.hpp"

namespace gk {
namespace {

constexpr u32 kMaxQueues = 256, kNameBytes = 256, kPriorities = 32768;
constexpr u64 kDefaultMessages = 10, kDefaultBytes = 8192; // also the maximum unless root
constexpr u64 kMaxMessages = 65536, kMaxBytes = 16 << 20;
constexpr u64 kMessageCost = 56; // per-message overhead counted in RLIMIT_MSGQUEUE
enum Notify : i32 { kNobody = -1, kSignal = 0, kNone = 1 };

struct Message {
    Message* next;
    u32 priority;
    u32 bytes;
    u8 data[];
};

struct QueueFile;
struct Queue {
    char name[kNameBytes] = {};
    Queue* next = nullptr;
    bool linked = true;
    u32 mode = 0, uid = 0, gid = 0;
    u64 most = kDefaultMessages, message_bytes = kDefaultBytes, count = 0;
    Message* head = nullptr; // highest priority first, then oldest first
    QueueFile* files = nullptr;
    u32 receivers = 0; // receivers that wait
    i32 notify = kNobody, notify_signal = 0;
    u64 notify_value = 0;
    u64 cost() const { return most * (message_bytes + kMessageCost); }
};
struct QueueFile : File {
    Queue* queue = nullptr;
    QueueFile* next = nullptr;
};

Queue* queues;
u32 queue_count;
u64 queue_cost;

bool same(const char* a, const char* b) {
    while (*a && *a == *b)
        ++a, ++b;
    return *a == *b;
}

// The link to the queue of that name, or the link at the end of the list.
Queue** find(const char* name) {
    Queue** at = &queues;
    while (*at && !same((*at)->name, name))
        at = &(*at)->next;
    return at;
}

void drop_message(Queue* q) {
    Message* m = q->head;
    q->head = m->next;
    --q->count;
    release(m, sizeof(Message) + m->bytes);
}

void free_if_unused(Queue* q) {
    if (q->linked || q->files)
        return;
    while (q->head)
        drop_message(q);
    --queue_count;
    queue_cost -= q->cost();
    destroy(q);
}

void notify_files(Queue* q, void (*event)(File*)) {
    for (QueueFile* f = q->files; f; f = f->next)
        event(f);
}

// Opening a queue needs the same rights as for a file (fs/namei.c, acl_permission_check).
bool permitted(const Queue* q, u32 access) {
    const Credentials& who = current->ids;
    const u32 need = access == 0 ? 4 : access == O_WRONLY_ ? 2 : 6;
    const u32 shift = who.user.file == q->uid ? 6 : who.in_group(q->gid) ? 3 : 0;
    return who.may(kCapDacOverride) || (q->mode >> shift & need) == need;
}

i64 queue_name(char* name, u64 from) {
    const i64 length = string_from_user(name, from, kNameBytes);
    if (length <= 0)
        return length == 0 ? -ENOENT : length;
    for (const char* p = name; *p; ++p)
        if (*p == '/')
            return -EACCES;
    return 0;
}

i64 no_write(File*, Cursor&, i64) { return -EINVAL; }
i64 no_read(File*, Cursor&, i64) { return -EINVAL; } // on Linux, a read returns a line of status
u32 queue_poll(File* file) {
    const Queue* q = static_cast<QueueFile*>(file)->queue;
    return (q->count ? POLLIN_ | POLLRDNORM_ : 0u) | (q->count < q->most ? POLLOUT_ | POLLWRNORM_ : 0u);
}
void queue_close(File* file) {
    auto* f = static_cast<QueueFile*>(file);
    Queue* q = f->queue;
    QueueFile** at = &q->files;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    q->notify = kNobody;
    destroy(f);
    free_if_unused(q);
}
const FileOps queue_ops{no_read, no_write, queue_poll, queue_close, "mqueue"};

struct Attributes {
    i64 flags, most, bytes, count, reserved[4];
};

i64 make_queue(const char* name, u64 mode, u64 attributes, Queue*& made) {
    u64 most = kDefaultMessages, bytes = kDefaultBytes;
    if (attributes) {
        Attributes a;
        if (!get_user(a, attributes))
            return -EFAULT;
        const bool root = current->ids.user.effective == 0;
        if (a.most <= 0 || a.bytes <= 0 || static_cast<u64>(a.most) > (root ? kMaxMessages : kDefaultMessages) ||
            static_cast<u64>(a.bytes) > (root ? kMaxBytes : kDefaultBytes))
            return -EINVAL;
        most = static_cast<u64>(a.most);
        bytes = static_cast<u64>(a.bytes);
    }
    if (queue_count == kMaxQueues)
        return -28; // ENOSPC
    if (const u64 limit = soft_limit_of(kLimitMsgqueue); queue_cost + most * (bytes + kMessageCost) > limit)
        return -EMFILE;
    auto* q = make<Queue>();
    if (!q)
        return -ENOMEM;
    for (u32 i = 0; name[i]; ++i)
        q->name[i] = name[i];
    q->most = most;
    q->message_bytes = bytes;
    q->mode = static_cast<u32>(mode) & 0777 & ~creation_mask();
    q->uid = current->ids.user.file;
    q->gid = current->ids.group.file;
    q->next = queues;
    queues = q;
    ++queue_count;
    queue_cost += q->cost();
    made = q;
    return 0;
}

void unlink(Queue** at) {
    Queue* q = *at;
    *at = q->next;
    q->linked = false;
    free_if_unused(q);
}

// Converts the absolute timeout of a send or receive to a deadline.
i64 deadline_from(u64 at, u64& deadline) {
    deadline = kNever;
    if (!at)
        return 0;
    Timespec t;
    if (!get_user(t, at))
        return -EFAULT;
    if (!valid(t))
        return -EINVAL;
    deadline = deadline_of(kRealtime, true, t);
    return 0;
}

QueueFile* queue_file(File* f) { return f && f->kind == Kind::message_queue ? static_cast<QueueFile*>(f) : nullptr; }

void notify(Queue* q) {
    if (q->notify == kNobody || q->receivers != 0)
        return;
    constexpr i32 kSiMessageQueue = -3;
    if (q->notify == kSignal)
        send_process_signal(q->notify_signal, own_signal(q->notify_signal, kSiMessageQueue, q->notify_value));
    q->notify = kNobody;
}

void insert(Queue* q, Message* m) {
    Message** at = &q->head;
    while (*at && (*at)->priority >= m->priority)
        at = &(*at)->next;
    m->next = *at;
    *at = m;
    ++q->count;
}

// Waits while blocked() is true: 0 or -errno.
template <class Blocked>
i64 wait_while(QueueFile* f, u64 deadline, Blocked blocked) {
    while (blocked()) {
        if (nonblocking(f))
            return -EAGAIN;
        if (has_passed(deadline))
            return -ETIMEDOUT;
        if (wait_io(deadline) == Wake::signal)
            return -ERESTARTSYS;
    }
    return 0;
}

} // namespace

i64 sys_mq_open(const Args& c) {
    char name[kNameBytes];
    const u32 flags = static_cast<u32>(c.a[1]);
    constexpr u32 kExclusive = 0x80;
    if (const i64 error = queue_name(name, c.a[0]); error < 0)
        return error;
    if ((flags & O_ACCMODE_) == O_ACCMODE_)
        return -EINVAL;
    Queue* q = *find(name);
    const bool fresh = !q;
    if (q && (flags & O_CREAT_) && (flags & kExclusive))
        return -EEXIST;
    if (fresh && !(flags & O_CREAT_))
        return -ENOENT;
    if (fresh)
        if (const i64 error = make_queue(name, c.a[2], c.a[3], q); error < 0)
            return error;
    if (!fresh && !permitted(q, flags & O_ACCMODE_))
        return -EACCES;
    auto* f = make<QueueFile>();
    i64 fd = -ENOMEM;
    if (f) {
        f->ops = &queue_ops;
        f->kind = Kind::message_queue;
        f->flags = flags & (O_ACCMODE_ | O_NONBLOCK_);
        f->queue = q;
        f->next = q->files;
        q->files = f;
        fd = install_or_release(f, (flags & O_CLOEXEC_) != 0);
    }
    if (fd < 0 && fresh)
        unlink(find(name));
    return fd;
}

i64 sys_mq_unlink(const Args& c) {
    char name[kNameBytes];
    if (const i64 error = queue_name(name, c.a[0]); error < 0)
        return error;
    Queue** at = find(name);
    if (!*at)
        return -ENOENT;
    if ((*at)->uid != current->ids.user.file && !current->ids.may(kCapFowner)) // Linux's mqueue folder is sticky
        return -EPERM;
    unlink(at);
    return 0;
}

i64 sys_mq_timedsend(const Args& c) {
    u64 deadline;
    if (const i64 error = deadline_from(c.a[4], deadline); error < 0)
        return error;
    const u32 priority = static_cast<u32>(c.a[3]);
    if (priority >= kPriorities)
        return -EINVAL;
    Hold held(c.a[0]);
    QueueFile* f = queue_file(held.get());
    if (!f || (f->flags & O_ACCMODE_) == 0)
        return -EBADF;
    Queue* q = f->queue;
    if (c.a[2] > q->message_bytes)
        return -EMSGSIZE;
    auto* m = static_cast<Message*>(allocate_dirty(sizeof(Message) + c.a[2]));
    if (!m)
        return -ENOMEM;
    m->priority = priority;
    m->bytes = static_cast<u32>(c.a[2]);
    i64 error = c.a[2] && !copy_from_user(m->data, c.a[1], c.a[2]) ? -EFAULT : 0;
    if (error == 0)
        error = wait_while(f, deadline, [&] { return q->count >= q->most; });
    if (error < 0) {
        release(m, sizeof(Message) + c.a[2]);
        return error;
    }
    const bool was_empty = q->count == 0;
    insert(q, m);
    if (was_empty)
        notify(q);
    notify_files(q, event_in);
    return 0;
}

i64 sys_mq_timedreceive(const Args& c) {
    u64 deadline;
    if (const i64 error = deadline_from(c.a[4], deadline); error < 0)
        return error;
    Hold held(c.a[0]);
    QueueFile* f = queue_file(held.get());
    if (!f || (f->flags & O_ACCMODE_) == O_WRONLY_)
        return -EBADF;
    Queue* q = f->queue;
    if (c.a[2] < q->message_bytes)
        return -EMSGSIZE;
    ++q->receivers;
    const i64 error = wait_while(f, deadline, [&] { return q->count == 0; });
    --q->receivers;
    if (error < 0)
        return error;
    const Message* m = q->head;
    const i64 bytes = m->bytes;
    const bool copied =
        (!c.a[3] || put_user(c.a[3], m->priority)) && (bytes == 0 || copy_to_user(c.a[1], m->data, m->bytes));
    drop_message(q);
    notify_files(q, event_out);
    return copied ? bytes : -EFAULT;
}

i64 sys_mq_notify(const Args& c) {
    struct {
        u64 value;
        i32 signal, notify;
    } event{};
    if (c.a[1] && !get_user(event, c.a[1]))
        return -EFAULT;
    if (c.a[1] && event.notify != kSignal && event.notify != kNone) // SIGEV_THREAD needs a netlink socket
        return -EINVAL;
    if (c.a[1] && event.notify == kSignal && (event.signal < 0 || event.signal > 64))
        return -EINVAL;
    QueueFile* f = queue_file(file_of(static_cast<i32>(c.a[0])));
    if (!f)
        return -EBADF;
    Queue* q = f->queue;
    if (!c.a[1]) {
        q->notify = kNobody;
        return 0;
    }
    if (q->notify != kNobody)
        return -EBUSY;
    q->notify = event.notify;
    q->notify_signal = event.signal;
    q->notify_value = event.value;
    return 0;
}

i64 sys_mq_getsetattr(const Args& c) {
    Attributes fresh;
    if (c.a[1]) {
        if (!get_user(fresh, c.a[1]))
            return -EFAULT;
        if (fresh.flags & ~i64{O_NONBLOCK_})
            return -EINVAL;
    }
    QueueFile* f = queue_file(file_of(static_cast<i32>(c.a[0])));
    if (!f)
        return -EBADF;
    const Queue* q = f->queue;
    const Attributes old{f->flags & O_NONBLOCK_,
                         static_cast<i64>(q->most),
                         static_cast<i64>(q->message_bytes),
                         static_cast<i64>(q->count),
                         {}};
    if (c.a[1])
        f->flags = (f->flags & ~u32{O_NONBLOCK_}) | static_cast<u32>(fresh.flags);
    return !c.a[2] || put_user(c.a[2], old) ? 0 : -EFAULT;
}

} // namespace gk
