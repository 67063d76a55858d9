// System V shared memory: a segment is a memfd on the host, mapped shared.
#include "tinykvm/guest/sysv.hpp"

namespace gk {
namespace {

enum : u32 { kReadOnly = 010000, kRound = 020000, kRemap = 040000, kExec = 0100000, kDestroyed = 01000 };
enum : u32 { kLock = 11, kUnlock = 12, kStat = 13, kInfo = 14, kStatAny = 15 };
enum : u32 { kMmap = 9, kMunmap = 11, kFtruncate = 77, kMemfdCreate = 319 };
constexpr u32 kMaxSegments = 512;
constexpr u64 kMaxBytes = u64{1} << 46;

struct Segment : IpcObject {
    u64 bytes = 0;
    i32 handle = abi::kNoHandle;
    i64 attached_at = 0, detached_at = 0, changed_at = 0;
    i32 creator = 0, last = 0;
    u64 attached = 0;
};
[[gnu::section(".bss.large")]] IpcTable<Segment, kMaxSegments> segments;

// One contiguous mapping of a segment, like a VMA in Linux. munmap may split what shmat mapped.
struct Attachment {
    u64 base; // address of the segment's first byte, mapped or not: the argument of shmdt
    u64 begin, end;
    Segment* segment;
    Attachment* next;
};
Attachment* attachments;

// struct shmid64_ds (asm-generic/shmbuf.h).
struct SegmentStat {
    IpcPerm perm;
    u64 bytes;
    i64 atime, dtime, ctime;
    i32 cpid, lpid;
    u64 attached, unused[2];
};
static_assert(sizeof(SegmentStat) == 112);

void destroy_segment(Segment* segment) {
    segments.remove(segment);
    host_call(abi::kCloseHandle, static_cast<u64>(segment->handle));
    destroy(segment);
}

Segment* create_segment(u64 bytes, i64& error) {
    Segment* segment = make<Segment>();
    if (!segment) {
        error = -ENOMEM;
        return nullptr;
    }
    abi::OpenReply reply{};
    const i64 handle = host_call(kMemfdCreate, address("SYSV"), 0, address(&reply));
    if (handle >= 0)
        error = host_call(kFtruncate, static_cast<u64>(handle), (bytes + 4095) & ~u64{4095});
    if (handle < 0 || error < 0) {
        if (handle >= 0)
            host_call(abi::kCloseHandle, static_cast<u64>(handle));
        destroy(segment);
        error = -kNoSpace;
        return nullptr;
    }
    segment->bytes = bytes;
    segment->handle = static_cast<i32>(handle);
    segment->creator = static_cast<i32>(gk_shared_page.pid);
    segment->changed_at = ipc_seconds();
    return segment;
}

i64 report_status(const Segment& s, u64 at) {
    SegmentStat stat{};
    stat.perm = s.perm;
    stat.bytes = s.bytes;
    stat.atime = s.attached_at;
    stat.dtime = s.detached_at;
    stat.ctime = s.changed_at;
    stat.cpid = s.creator;
    stat.lpid = s.last;
    stat.attached = s.attached;
    return put_user(at, stat) ? 0 : -EFAULT;
}

u64 pages_of(u64 bytes) { return (bytes + 4095) & ~u64{4095}; }

void leave(Segment* segment) {
    segment->detached_at = ipc_seconds();
    segment->last = static_cast<i32>(gk_shared_page.pid);
    if (--segment->attached == 0 && segment->removed)
        destroy_segment(segment);
}

void detach(Attachment** link) {
    Attachment* attachment = *link;
    *link = attachment->next;
    leave(attachment->segment);
    destroy(attachment);
}

i64 report_limits(u64 at) {
    const u64 limits[9] = {kMaxBytes, 1, kMaxSegments, kMaxSegments, kMaxBytes >> 12};
    return put_user(at, limits) ? segments.highest() : -EFAULT;
}

i64 report_usage(u64 at) {
    struct {
        i32 used, pad;
        u64 total, resident, swapped, attempts, successes;
    } info{};
    info.used = static_cast<i32>(segments.count());
    for (const Segment* s : segments.slots)
        info.total += s ? (s->bytes + 4095) >> 12 : 0;
    info.resident = info.total;
    return put_user(at, info) ? segments.highest() : -EFAULT;
}

} // namespace

void segments_unmapped(u64 at, u64 bytes) {
    const u64 end = at + pages_of(bytes);
    for (Attachment** link = &attachments; *link;) {
        Attachment* a = *link;
        if (end <= a->begin || a->end <= at) {
            link = &a->next;
        } else if (at <= a->begin && a->end <= end) {
            detach(link);
        } else {
            if (a->begin < at && end < a->end)
                if (auto* rest = static_cast<Attachment*>(allocate(sizeof(Attachment)))) {
                    *rest = {a->base, end, a->end, a->segment, a->next};
                    a->next = rest;
                    ++a->segment->attached;
                }
            if (a->begin < at)
                a->end = at;
            else
                a->begin = end;
            link = &a->next;
        }
    }
}

void segments_moved(u64 from, u64 old_bytes, u64 to, u64 new_bytes) {
    const u64 old_end = from + pages_of(old_bytes), new_end = to + pages_of(new_bytes);
    Segment* segment = nullptr;
    u64 base = 0;
    for (const Attachment* a = attachments; a && !segment; a = a->next)
        if (a->begin <= from && old_end <= a->end) { // mremap works on a single mapping
            segment = a->segment;
            base = a->base;
        }
    if (segment)
        ++segment->attached;
    if (from != to)
        segments_unmapped(to, new_bytes);
    segments_unmapped(from, old_bytes);
    if (!segment)
        return;
    if (auto* moved = static_cast<Attachment*>(allocate(sizeof(Attachment)))) {
        *moved = {base + (to - from), to, new_end, segment, attachments};
        attachments = moved;
    } else {
        leave(segment);
    }
}

i64 sys_shmget(const Args& c) {
    const u64 bytes = c.a[1];
    return segments.get(
        static_cast<i32>(c.a[0]), static_cast<u32>(c.a[2]),
        [&](const Segment& s) -> i64 { return bytes > s.bytes ? -EINVAL : 0; },
        [&](i64& error) -> Segment* {
            if (bytes == 0 || bytes > kMaxBytes) {
                error = -EINVAL;
                return nullptr;
            }
            return create_segment(bytes, error);
        });
}

i64 sys_shmat(const Args& c) {
    constexpr u64 kShared = 1, kFixedNoReplace = 0x100000, kFixed = 0x10;
    const u32 flags = static_cast<u32>(c.a[2]);
    u64 at = c.a[1];
    Segment* segment = segments.find(static_cast<i32>(c.a[0]));
    u64 how = kShared;
    if (at != 0) {
        if (at & 4095) {
            if (!(flags & kRound))
                return -EINVAL;
            at &= ~u64{4095};
            if (at == 0 && (flags & kRemap))
                return -EINVAL;
        }
        how |= flags & kRemap ? kFixed : kFixedNoReplace;
    } else if (flags & kRemap) {
        return -EINVAL;
    }
    if (!segment)
        return -EINVAL;
    if (!ipc_permitted(segment->perm, (flags & kReadOnly ? 4 : 6) | (flags & kExec ? 1 : 0)))
        return -EACCES;
    auto* attachment = static_cast<Attachment*>(allocate(sizeof(Attachment)));
    if (!attachment)
        return -ENOMEM;
    const u64 protection = 1 | (flags & kReadOnly ? 0 : 2) | (flags & kExec ? 4 : 0);
    const i64 mapped = host_call(kMmap, at, segment->bytes, protection, how, static_cast<u64>(segment->handle), 0);
    if (mapped < 0) {
        destroy(attachment);
        return mapped == -EEXIST ? -EINVAL : mapped;
    }
    const u64 begin = static_cast<u64>(mapped);
    ++segment->attached; // or segments_unmapped() might free the segment
    segments_unmapped(begin, segment->bytes);
    *attachment = {begin, begin, begin + pages_of(segment->bytes), segment, attachments};
    attachments = attachment;
    segment->attached_at = ipc_seconds();
    segment->last = static_cast<i32>(gk_shared_page.pid);
    return mapped;
}

i64 sys_shmdt(const Args& c) {
    Segment* segment = nullptr; // parts with the same base may differ: take those of the first part's segment
    for (Attachment** link = &attachments; *link;) {
        Attachment* attachment = *link;
        if (attachment->base != c.a[0] || (segment && attachment->segment != segment)) {
            link = &attachment->next;
            continue;
        }
        if (!segment)
            ++(segment = attachment->segment)->attached;
        host_call(kMunmap, attachment->begin, attachment->end - attachment->begin);
        detach(link);
    }
    if (!segment)
        return -EINVAL;
    leave(segment);
    return 0;
}

i64 sys_shmctl(const Args& c) {
    const auto id = static_cast<i32>(c.a[0]);
    const auto command = static_cast<u32>(c.a[1]);
    if (id < 0 || static_cast<i32>(command) < 0)
        return -EINVAL;
    if (command == kIpcInfo)
        return report_limits(c.a[2]);
    if (command == kInfo)
        return report_usage(c.a[2]);
    const bool by_slot = command == kStat || command == kStatAny;
    Segment* segment = by_slot ? segments.at(id) : segments.find(id);
    SegmentStat wanted;
    switch (command) {
    case kIpcStat:
    case kStat:
    case kStatAny: {
        if (!segment)
            return -EINVAL;
        if (command != kStatAny && !ipc_permitted(segment->perm, 4))
            return -EACCES;
        const i64 error = report_status(*segment, c.a[2]);
        return error < 0 || !by_slot ? error : segment->id;
    }
    case kIpcSet:
        if (!get_user(wanted, c.a[2]))
            return -EFAULT;
        if (!segment)
            return -EINVAL;
        ipc_set(segment->perm, wanted.perm);
        segment->changed_at = ipc_seconds();
        return 0;
    case kIpcRemove:
        if (!segment)
            return -EINVAL;
        segment->removed = true;
        segment->perm.key = 0;
        segment->perm.mode |= kDestroyed;
        if (segment->attached == 0)
            destroy_segment(segment);
        return 0;
    case kLock:
    case kUnlock: return segment ? 0 : -EINVAL; // the guest's memory is never paged out
    default: return -EINVAL;
    }
}

} // namespace gk
