// Calls on the machine's own files, by path and by descriptor.
#include "tinykvm/guest/limits.hpp"
#include "tinykvm/guest/own_files.hpp"
#include "tinykvm/guest/owners.hpp"

namespace gk::own {
namespace {

// --- reading attributes --------------------------------------------------------------------------

i64 give_stat(const Node* n, u64 to) {
    u8 stat[144];
    fill_stat(n, stat);
    return copy_to_user(to, stat, sizeof(stat)) ? 0 : -EFAULT;
}

i64 give_statx(const Node* n, u64 to) {
    struct Time {
        i64 sec;
        u32 nsec;
        i32 pad;
    };
    struct {
        u32 mask, block_size;
        u64 attributes;
        u32 links, uid, gid;
        u16 mode, pad;
        u64 ino, size, blocks, attributes_mask;
        Time accessed, born, changed, modified;
        u32 rdev_major, rdev_minor, dev_major, dev_minor;
        u64 rest[14];
    } s{};
    static_assert(sizeof(s) == 256);
    const auto time = [](u64 ns) {
        return Time{static_cast<i64>(ns / 1'000'000'000), static_cast<u32>(ns % 1'000'000'000), 0};
    };
    u64 stat[18];
    fill_stat(n, stat);
    s.mask = 0xfff;
    s.block_size = 4096;
    s.links = n->links;
    s.uid = n->uid;
    s.gid = n->gid;
    s.mode = static_cast<u16>(n->mode);
    s.ino = n->ino;
    s.size = stat[6];
    s.blocks = n->pages * 8;
    s.accessed = time(n->accessed);
    s.born = time(n->born);
    s.changed = time(n->changed);
    s.modified = time(n->modified);
    s.dev_minor = 0x20u + n->volume;
    return put_user(to, s) ? 0 : -EFAULT;
}

i64 give_statfs(u64 to) {
    const Usage u = usage();
    struct {
        u64 type, block_size, blocks, free, available, files, files_free, id, name_length, fragment, flags, spare[4];
    } s{};
    static_assert(sizeof(s) == 120);
    s.type = 0x01021994; // TMPFS_MAGIC
    s.block_size = s.fragment = kPage;
    s.blocks = u.max_pages;
    s.free = s.available = u.max_pages > u.pages ? u.max_pages - u.pages : 0;
    s.files = u.max_nodes;
    s.files_free = u.max_nodes - u.nodes;
    s.name_length = kMaxName;
    s.flags = 0x26; // ST_VALID | ST_NOSUID | ST_NODEV
    return put_user(to, s) ? 0 : -EFAULT;
}

i64 give_target(const Node* n, u64 to, u64 room) {
    if (static_cast<i32>(room) <= 0)
        return -EINVAL;
    if (n->format() != kLink)
        return -EINVAL;
    const u64 bytes = n->content.size < room ? n->content.size : room;
    return copy_to_user(to, n->target, bytes) ? static_cast<i64>(bytes) : -EFAULT;
}

i64 access(const Node* n, u64 mode) {
    if (mode & ~u64{7})
        return -EINVAL;
    return permitted(n, static_cast<u32>(mode)) ? 0 : -EACCES;
}

// --- changing attributes -------------------------------------------------------------------------

i64 change_mode(Node* n, u64 mode) {
    if (n->format() == kLink)
        return -EOPNOTSUPP;
    if (!owns(n))
        return -EPERM;
    n->mode = n->format() | mode_for_group(static_cast<u32>(mode) & 07777, n->gid);
    n->changed = now_real();
    note(n, kNoteAttributes);
    return 0;
}

i64 change_owner(Node* n, u64 uid, u64 gid) {
    const u32 owner = static_cast<u32>(uid), group = static_cast<u32>(gid), keep_it = ~0u;
    if (!may_change_owner(n->uid, n->gid, owner, group))
        return -EPERM;
    if (!n->is_folder())
        drop_set_ids(n);
    if (owner != keep_it)
        n->uid = owner;
    if (group != keep_it)
        n->gid = group;
    n->changed = now_real();
    note(n, kNoteAttributes);
    return 0;
}

i64 change_times(Node* n, u64 at) {
    constexpr i64 kNow = 0x3fffffff, kOmit = 0x3ffffffe;
    Timespec t[2] = {{0, kNow}, {0, kNow}};
    if (at && !get_user(t, at))
        return -EFAULT;
    for (const Timespec& one : t)
        if (one.nsec != kNow && one.nsec != kOmit && (one.nsec < 0 || one.nsec >= 1'000'000'000))
            return -EINVAL;
    if (t[0].nsec == kOmit && t[1].nsec == kOmit)
        return 0;
    const bool now_only = t[0].nsec == kNow && t[1].nsec == kNow;
    if (!owns(n) && !(now_only && permitted(n, 2)))
        return now_only ? -EACCES : -EPERM;
    const u64 now = now_real();
    u64* const which[] = {&n->accessed, &n->modified};
    for (u32 i = 0; i < 2; ++i)
        if (t[i].nsec != kOmit)
            *which[i] =
                t[i].nsec == kNow ? now : static_cast<u64>(t[i].sec) * 1'000'000'000 + static_cast<u64>(t[i].nsec);
    n->changed = now;
    note(n, kNoteAttributes);
    return 0;
}

i64 truncate(Node* n, i64 bytes) {
    if (bytes < 0)
        return -EINVAL;
    if (n->is_folder())
        return -EISDIR;
    if (n->format() != kRegular)
        return -EINVAL;
    if (const i64 error = set_size(n, static_cast<u64>(bytes)); error < 0)
        return error;
    content_changed(n);
    note(n, kNoteModify);
    return 0;
}

i64 allocate_range(OwnFile* f, u64 mode, i64 offset, i64 length) {
    constexpr u64 kKeepSize = 1, kPunchHole = 2;
    Node* n = f->node;
    if ((f->flags & O_ACCMODE_) == 0)
        return -EBADF;
    if (offset < 0 || length <= 0)
        return -EINVAL;
    if (n->is_folder())
        return -EISDIR;
    if (mode & ~(kKeepSize | kPunchHole))
        return -EOPNOTSUPP;
    const u64 from = static_cast<u64>(offset), to = from + static_cast<u64>(length);
    if (to > static_cast<u64>(INT64_MAX))
        return -EFBIG;
    if (mode & kPunchHole) {
        if (!(mode & kKeepSize))
            return -EOPNOTSUPP;
        punch(n, from, to);
    } else {
        if (to > n->content.size) // even with kKeepSize, as on tmpfs (mm/shmem.c, shmem_fallocate)
            if (const i64 error = may_reach(to); error < 0)
                return error;
        const bool at_host = n->handle >= 0;
        i64 error = at_host ? host_call(285, static_cast<u64>(n->handle), mode, from, to - from) : make_room(n, to);
        if (error == 0 && !at_host)
            error = hold(n, from, to);
        if (error == 0 && !(mode & kKeepSize) && to > n->content.size)
            error = set_size(n, to);
        if (error < 0)
            return error;
    }
    content_changed(n);
    note(n, kNoteModify);
    return 0;
}

} // namespace

i64 seek_data(const OwnFile* f, i64 offset, bool hole) {
    const Node* n = f->node;
    if (offset < 0 || offset >= n->size())
        return -ENXIO;
    if (n->handle >= 0)
        return host_call(8, static_cast<u64>(n->handle), static_cast<u64>(offset), hole ? 4 : 3);
    u64 at = static_cast<u64>(offset);
    while (at < n->content.size && holds(n, at / kPage) == hole)
        at = (at / kPage + 1) * kPage;
    if (at >= n->content.size)
        return hole ? n->size() : -ENXIO;
    return static_cast<i64>(at);
}

i64 path_call(Place& place, u32 nr, const u64* a) {
    switch (nr) {
    case 258: return make_folder(place, a[2]);
    case 259: return make_special(place, a[2]);
    case 263: return unlink(place, a[2]);
    default: break;
    }
    if (const i64 error = check_old(place); error < 0)
        return error;
    Node* n = place.node;
    switch (nr) {
    case 76:
        if (n->is_folder())
            return -EISDIR;
        return permitted(n, 2) ? truncate(n, static_cast<i64>(a[2])) : -EACCES;
    case 80:
        if (!n->is_folder())
            return -ENOTDIR;
        if (!permitted(n, 1))
            return -EACCES;
        set_current_folder(n);
        return 0;
    case 137: return give_statfs(a[2]);
    case 260: return change_owner(n, a[2], a[3]);
    case 262: return give_stat(n, a[2]);
    case 267: return give_target(n, a[2], a[3]);
    case 268:
    case 452: return change_mode(n, a[2]);
    case 269:
    case 439: return access(n, a[2]);
    case 280: return change_times(n, a[2]);
    case 332: return give_statx(n, a[4]);
    case 188:
    case 189:
    case 191:
    case 192:
    case 194:
    case 195:
    case 197:
    case 198: return attribute_call(n, nr, a + 2);
    default: return -ENOSYS;
    }
}

i64 handle_call(OwnFile* f, u32 nr, const Args& c) {
    Node* n = f->node;
    const bool path_only = (f->flags & O_PATH_) != 0;
    switch (nr) {
    case 5: return give_stat(n, c.a[1]);
    case 332: return give_statx(n, c.a[4]);
    case 138: return give_statfs(c.a[1]);
    case 81:
        if (!n->is_folder())
            return -ENOTDIR;
        if (!permitted(n, 1))
            return -EACCES;
        set_current_folder(n);
        return 0;
    default: break;
    }
    if (path_only)
        return -EBADF;
    switch (nr) {
    case 74:
    case 75:
    case 306: return 0; // fsync, fdatasync, syncfs
    case 187:
    case 221:
    case 277: return n->format() == kRegular || n->is_folder() ? 0 : -ESPIPE;
    case 77:
        if ((f->flags & O_ACCMODE_) == 0 || n->format() != kRegular)
            return -EINVAL;
        return truncate(n, static_cast<i64>(c.a[1]));
    case 91: return change_mode(n, c.a[1]);
    case 93: return change_owner(n, c.a[1], c.a[2]);
    case 280: return change_times(n, c.a[2]);
    case 285: return allocate_range(f, c.a[1], static_cast<i64>(c.a[2]), static_cast<i64>(c.a[3]));
    case 190:
    case 193:
    case 196:
    case 199: return attribute_call(n, nr, c.a + 1);
    default: return -EINVAL;
    }
}

i64 map(OwnFile* f, const Args& c) {
    constexpr u64 kPrivate = 2, kAnonymous = 0x20, kPopulate = 0x8000;
    constexpr u32 kMmap = 9, kMprotect = 10, kMunmap = 11;
    Node* n = f->node;
    const u64 type = c.a[3] & 0xf, mode = f->flags & O_ACCMODE_;
    if ((mode & O_WRONLY_) || (type != kPrivate && (c.a[2] & 2) && mode != O_RDWR_))
        return -EACCES;
    if (n->format() != kRegular)
        return -ENODEV;
    if (c.a[1] == 0)
        return -EINVAL;
    const u64 offset = c.a[5];
    if (type != kPrivate)
        if (const i64 error = move_to_host(n); error < 0)
            return error == -ENOSPC ? -ENOMEM : error;
    if (n->handle >= 0)
        return host_call(kMmap, c.a[0], c.a[1], c.a[2], c.a[3], static_cast<u64>(n->handle), offset);
    // A private mapping need not see later changes of the file, so it is a copy.
    const i64 at = host_call(kMmap, c.a[0], c.a[1], 3, (c.a[3] & ~kPopulate) | kAnonymous, ~u64{0}, 0);
    if (at < 0)
        return at;
    const u64 begin = static_cast<u64>(at), bytes = (c.a[1] + kPage - 1) & ~(kPage - 1);
    for (u64 done = 0; done < bytes && offset + done < n->content.size; done += kPage)
        if (holds(n, (offset + done) / kPage) &&
            !copy_to_user(begin + done, reinterpret_cast<void*>(n->content.data + offset + done), kPage)) {
            host_call(kMunmap, begin, bytes);
            return -ENOMEM;
        }
    if ((c.a[2] & 7) != 3)
        if (const i64 error = host_call(kMprotect, begin, bytes, c.a[2]); error < 0)
            return error;
    return at;
}

} // namespace gk::own
