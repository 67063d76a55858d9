// Calls on the machine's own files, by path and by descriptor.
#include "tinykvm/guest/own_files.hpp"

namespace gk::own {
namespace {

constexpr u32 kMostLinksOfAFile = 65000;

// --- looking ------------------------------------------------------------------------------------------------------------

i64 give_stat(const Node* n, u64 to) {
    u8 stat[144];
    fill_stat(n, stat);
    return copy_to_user(to, stat, sizeof(stat)) ? 0 : -EFAULT;
}

i64 give_statx(const Node* n, u64 to) {
    struct Time { i64 sec; u32 nsec; i32 pad; };
    struct {
        u32 mask, block_size; u64 attributes; u32 links, uid, gid; u16 mode, pad; u64 ino, size, blocks, attributes_mask;
        Time accessed, born, changed, modified; u32 rdev_major, rdev_minor, dev_major, dev_minor; u64 rest[14];
    } s{};
    static_assert(sizeof(s) == 256);
    const auto time = [](u64 ns) { return Time{static_cast<i64>(ns / 1'000'000'000), static_cast<u32>(ns % 1'000'000'000), 0}; };
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
    struct { u64 type, block_size, blocks, free, available, files, files_free, id, name_length, fragment, flags, spare[4]; } s{};
    static_assert(sizeof(s) == 120);
    s.type = 0x01021994; // TMPFS_MAGIC
    s.block_size = s.fragment = kPage;
    s.blocks = u.most_pages;
    s.free = s.available = u.most_pages > u.pages ? u.most_pages - u.pages : 0;
    s.files = u.most_nodes;
    s.files_free = u.most_nodes - u.nodes;
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

// --- changing what a node says of itself ----------------------------------------------------------------------------------

bool owns(const Node* n) { return own_uid() == 0 || own_uid() == n->uid; }

i64 change_mode(Node* n, u64 mode) {
    if (n->format() == kLink)
        return -EOPNOTSUPP;
    if (!owns(n))
        return -EPERM;
    n->mode = n->format() | (static_cast<u32>(mode) & 07777);
    n->changed = now_real();
    note(n, kNoteAttributes);
    return 0;
}

i64 change_owner(Node* n, u64 uid, u64 gid) {
    const u32 owner = static_cast<u32>(uid), group = static_cast<u32>(gid), keep_it = ~0u;
    if (own_uid() != 0 && ((owner != keep_it && owner != n->uid) || !owns(n) || (group != keep_it && group != own_gid() && group != n->gid)))
        return -EPERM;
    if (owner != keep_it)
        n->uid = owner;
    if (group != keep_it)
        n->gid = group;
    if (n->format() == kRegular && (n->mode & 0111))
        n->mode &= ~06000u;
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
            *which[i] = t[i].nsec == kNow ? now : static_cast<u64>(t[i].sec) * 1'000'000'000 + static_cast<u64>(t[i].nsec);
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

// --- names ---------------------------------------------------------------------------------------------------------------

i64 check_new(const Place& place) {
    if (place.error < 0)
        return place.error;
    if (place.node)
        return -EEXIST;
    return permitted(place.folder, 3) ? 0 : -EACCES;
}

i64 add(Place& place, Node* n) {
    if (!n)
        return -ENOSPC;
    keep(n);
    const i64 result = add_entry(place.folder, place.name, place.length, n);
    if (result == 0)
        note_name(place.folder, place.name, place.length, n, kNoteCreate);
    drop(n);
    return result;
}

i64 make_folder(Place& place, u64 mode) {
    if (place.error == -ENOTDIR && place.node)
        place.error = 0; // "file/": it is there
    if (const i64 error = check_new(place); error < 0)
        return error;
    Node* n = new_node(kDirectory | (static_cast<u32>(mode) & 01777 & ~creation_mask()), place.folder);
    if (n)
        n->links = 1; // its own "."
    const i64 result = add(place, n);
    return result;
}

i64 make_special(Place& place, u64 mode) {
    const u32 format = static_cast<u32>(mode) & kFormat;
    if (format == kDirectory)
        return -EPERM;
    if (format != 0 && format != kRegular && format != kFifo && format != kSocket)
        return format == 0020000 || format == 0060000 ? -EPERM : -EINVAL;
    if (const i64 error = check_new(place); error < 0)
        return error;
    if (place.must_be_folder)
        return -ENOENT;
    return add(place, new_node((format ? format : kRegular) | (static_cast<u32>(mode) & 07777 & ~creation_mask()), place.folder));
}

i64 check_old(const Place& place) {
    if (place.error < 0)
        return place.error;
    return place.node ? 0 : -ENOENT;
}

void take_away(Place& place) {
    Node* n = place.node;
    keep(n);
    if (n->is_folder()) {
        n->parent = nullptr;
        n->links = 1; // the name: "." goes with it
    }
    note_name(place.folder, place.name, place.length, n, kNoteDelete);
    remove_entry(find_entry(place.folder, place.name, place.length));
    if (n->links == 0)
        note(n, kNoteDeleteSelf);
    else
        note(n, kNoteAttributes);
    drop(n);
}

i64 remove_folder(Place& place) {
    if (place.ends_in_dot)
        return -EINVAL;
    if (place.ends_in_dotdot)
        return -ENOTEMPTY;
    if (const i64 error = check_old(place); error < 0)
        return error;
    if (place.length == 0)
        return -EBUSY;
    if (!may_remove(place.folder, place.node))
        return permitted(place.folder, 3) ? -EPERM : -EACCES;
    if (!place.node->is_folder())
        return -ENOTDIR;
    if (place.node->entries)
        return -ENOTEMPTY;
    take_away(place);
    return 0;
}

i64 unlink(Place& place, u64 flags) {
    if (flags & 0x200) // AT_REMOVEDIR
        return remove_folder(place);
    if (flags)
        return -EINVAL;
    if (place.ends_in_dot || place.ends_in_dotdot)
        return -EISDIR;
    if (const i64 error = check_old(place); error < 0)
        return error;
    if (place.length == 0)
        return -EISDIR;
    if (!may_remove(place.folder, place.node))
        return permitted(place.folder, 3) ? -EPERM : -EACCES;
    if (place.node->is_folder())
        return -EISDIR;
    take_away(place);
    return 0;
}

bool is_above(const Node* folder, const Node* n) {
    for (const Node* at = n;; at = at->parent) {
        if (at == folder)
            return true;
        if (!at || !at->parent || at->parent == at)
            return false;
    }
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

i64 rename(Place& from, Place& to, u32 flags) {
    constexpr u32 kNoReplace = 1, kExchange = 2;
    if (flags & ~(kNoReplace | kExchange) || flags == (kNoReplace | kExchange))
        return -EINVAL;
    if (from.error < 0)
        return from.error;
    if (to.error < 0 && !(to.error == -ENOTDIR && to.node))
        return to.error;
    if (from.length == 0 || to.length == 0)
        return -EBUSY;
    if (from.folder->volume != to.folder->volume)
        return -EXDEV;
    if (!from.node)
        return -ENOENT;
    Node *a = from.node, *b = to.node;
    if ((flags & kNoReplace) && b)
        return -EEXIST;
    if ((flags & kExchange) && !b)
        return -ENOENT;
    if (to.must_be_folder && !a->is_folder())
        return -ENOTDIR;
    if (a->is_folder() && is_above(a, to.folder))
        return -EINVAL;
    if ((flags & kExchange) ? b->is_folder() && is_above(b, from.folder) : b && b->is_folder() && is_above(b, from.folder) && b != a)
        return (flags & kExchange) ? -EINVAL : -ENOTEMPTY;
    if (!may_remove(from.folder, a) || !permitted(to.folder, 3) || (b && !may_remove(to.folder, b)))
        return permitted(from.folder, 3) && permitted(to.folder, 3) ? -EPERM : -EACCES;
    if (a == b)
        return 0;
    if (b && !(flags & kExchange)) {
        if (b->is_folder() && !a->is_folder())
            return -EISDIR;
        if (!b->is_folder() && a->is_folder())
            return -ENOTDIR;
        if (b->is_folder() && b->entries)
            return -ENOTEMPTY;
    }
    static u32 cookie = 0;
    const u32 move = ++cookie;
    const auto place_at = [](Place& place, Node* n) { return add_entry(place.folder, place.name, place.length, n); };
    keep(a);
    if (b)
        keep(b);
    if (b && !(flags & kExchange)) {
        take_away(to);
        remove_entry(find_entry(from.folder, from.name, from.length));
    } else {
        if (b)
            remove_entry(find_entry(to.folder, to.name, to.length));
        remove_entry(find_entry(from.folder, from.name, from.length));
    }
    i64 result = place_at(to, a);
    if (result < 0)
        (void)place_at(from, a); // the room of the name that just went
    if (result == 0 && (flags & kExchange))
        result = place_at(from, b);
    note_name(from.folder, from.name, from.length, a, kNoteMovedFrom, move);
    note_name(to.folder, to.name, to.length, a, kNoteMovedTo, move);
    note(a, kNoteMoveSelf);
    if (b)
        drop(b);
    drop(a);
    return result;
}

i64 link(Place& from, Place& to) {
    if (const i64 error = check_old(from); error < 0)
        return error;
    if (from.node->is_folder())
        return to.node ? -EEXIST : -EPERM;
    if (const i64 error = check_new(to); error < 0)
        return error;
    if (to.must_be_folder)
        return -ENOENT;
    if (from.folder && from.node->volume != to.folder->volume)
        return -EXDEV;
    if (from.node->links >= kMostLinksOfAFile)
        return -31; // EMLINK
    return add(to, from.node);
}

i64 symlink(const char* target, Place& place) {
    if (const i64 error = check_new(place); error < 0)
        return error;
    if (place.must_be_folder)
        return -ENOENT;
    u64 length = 0;
    while (target[length])
        ++length;
    Node* n = new_node(kLink | 0777, place.folder);
    char* text = n ? static_cast<char*>(allocate(length + 1)) : nullptr;
    if (!text) {
        if (n) {
            keep(n);
            drop(n);
        }
        return -ENOSPC;
    }
    memcpy(text, target, length + 1);
    n->target = text;
    n->content.size = length;
    return add(place, n);
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
    case 268: case 452: return change_mode(n, a[2]);
    case 269: case 439: return access(n, a[2]);
    case 280: return change_times(n, a[2]);
    case 332: return give_statx(n, a[4]);
    case 188: case 189: case 191: case 192: case 194: case 195: case 197: case 198: return attribute_call(n, nr, a + 2);
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
    case 74: case 75: case 306: return 0; // fsync, fdatasync, syncfs
    case 187: case 221: case 277: return n->format() == kRegular || n->is_folder() ? 0 : -ESPIPE;
    case 77:
        if ((f->flags & O_ACCMODE_) == 0 || n->format() != kRegular)
            return -EINVAL;
        return truncate(n, static_cast<i64>(c.a[1]));
    case 91: return change_mode(n, c.a[1]);
    case 93: return change_owner(n, c.a[1], c.a[2]);
    case 280: return change_times(n, c.a[2]);
    case 285: return allocate_range(f, c.a[1], static_cast<i64>(c.a[2]), static_cast<i64>(c.a[3]));
    case 190: case 193: case 196: case 199: return attribute_call(n, nr, c.a + 1);
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
    // A private mapping may or may not see later changes: it is a copy.
    const i64 at = host_call(kMmap, c.a[0], c.a[1], 3, (c.a[3] & ~kPopulate) | kAnonymous, ~u64{0}, 0);
    if (at < 0)
        return at;
    const u64 begin = static_cast<u64>(at), bytes = (c.a[1] + kPage - 1) & ~(kPage - 1);
    for (u64 done = 0; done < bytes && offset + done < n->content.size; done += kPage)
        if (holds(n, (offset + done) / kPage) && !copy_to_user(begin + done, reinterpret_cast<void*>(n->content.data + offset + done), kPage)) {
            host_call(kMunmap, begin, bytes);
            return -ENOMEM;
        }
    if ((c.a[2] & 7) != 3)
        if (const i64 error = host_call(kMprotect, begin, bytes, c.a[2]); error < 0)
            return error;
    return at;
}

} // namespace gk::own
