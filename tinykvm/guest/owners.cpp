// Owners of files: the chown calls, and the owners that stat shows (fs/open.c, fs/attr.c).
//
// The host's file is never changed. A record identifies its file by device, inode and birth time, so that it does not
// apply to another file that later gets the same inode.
#include "tinykvm/guest/owners.hpp"
#include "tinykvm/guest/own_files.hpp"

namespace gk {
namespace {

enum Nr : u32 { kFchown = 93, kFchownat = 260, kStatx = 332 };
constexpr u64 kEmptyPath = 0x1000, kNoFollow = 0x100;
constexpr u32 kKeep = ~u32{0};
constexpr u64 kBasicAndBirth = 0xfff; // STATX_BASIC_STATS | STATX_BTIME
constexpr i32 kAtCwd = -100;

// linux/stat.h
struct StatxTime {
    i64 sec;
    u32 nsec;
    i32 reserved;
};
struct Statx {
    u32 mask, block_size;
    u64 attributes;
    u32 nlink, uid, gid;
    u16 mode, spare;
    u64 ino, size, blocks, attributes_mask;
    StatxTime atime, btime, ctime, mtime;
    u32 rdev_major, rdev_minor, dev_major, dev_minor;
    u64 more[14];
};
static_assert(sizeof(Statx) == 256);

struct Owner {
    Owner* next;
    u64 dev, ino;
    i64 born_sec;
    u32 born_nsec;
    u32 uid, gid;
};
constexpr u32 kBuckets = 256, kMaxOwners = 65536;
[[gnu::section(".bss.large")]] Owner* owners[kBuckets];
u32 owner_count;

Owner** place_of(u64 dev, u64 ino) {
    Owner** at = &owners[(ino ^ ino >> 8 ^ dev) % kBuckets];
    while (*at && ((*at)->dev != dev || (*at)->ino != ino))
        at = &(*at)->next;
    return at;
}
u64 dev_of(const Statx& file) { return u64{file.dev_major} << 32 | file.dev_minor; }

void forget(Owner** at) {
    Owner* gone = *at;
    *at = gone->next;
    destroy(gone);
    --owner_count;
}

// The record of this file, or null. Drops the record of an earlier file with the same inode.
Owner* record_of(const Statx& file) {
    Owner** at = place_of(dev_of(file), file.ino);
    if (!*at)
        return nullptr;
    if ((*at)->born_sec == file.btime.sec && (*at)->born_nsec == file.btime.nsec)
        return *at;
    forget(at);
    return nullptr;
}

bool record(const Statx& file, u32 uid, u32 gid) {
    Owner* here = record_of(file);
    if (file.uid == uid && file.gid == gid) {
        if (here)
            forget(place_of(here->dev, here->ino));
        return true;
    }
    if (!here) {
        if (owner_count >= kMaxOwners)
            return false;
        here = make<Owner>();
        if (!here)
            return false;
        *here = {nullptr, dev_of(file), file.ino, file.btime.sec, file.btime.nsec, uid, gid};
        Owner** at = place_of(here->dev, here->ino);
        *at = here;
        ++owner_count;
    }
    here->uid = uid;
    here->gid = gid;
    return true;
}

i64 look(const NamedFile& file, Statx& out) {
    out = {};
    if (file.handle >= 0)
        return host_call(kStatx, static_cast<u64>(file.handle), address(""), kEmptyPath, kBasicAndBirth, address(&out));
    return path_call(kStatx, file.dir, file.path, file.flags & (kNoFollow | kEmptyPath), kBasicAndBirth, 0, &out);
}

i64 change_owner(const NamedFile& named, u32 new_uid, u32 new_gid) {
    if (i64 result; named.handle < 0 && change_own_owner(named.dir, named.path, named.flags, new_uid, new_gid, result))
        return result;
    Statx file;
    if (const i64 error = look(named, file); error < 0)
        return error;
    const Owner* known = record_of(file);
    const u32 uid = known ? known->uid : file.uid, gid = known ? known->gid : file.gid;
    if (!may_change_owner(uid, gid, new_uid, new_gid))
        return -EPERM;
    // Ask the host whether the file may be changed, with a chown that changes nothing. stdio is always allowed: it has
    // no path that a permission could name.
    const bool stdio = named.handle >= 0 && named.handle <= abi::kHandleStderr;
    const i64 allowed = stdio ? 0
                        : named.handle >= 0
                            ? host_call(kFchown, static_cast<u64>(named.handle), ~u64{0}, ~u64{0})
                            : path_call(kFchownat, named.dir, named.path, ~u64{0}, ~u64{0}, named.flags & kNoFollow);
    if (allowed < 0)
        return allowed;
    return record(file, new_uid == kKeep ? uid : new_uid, new_gid == kKeep ? gid : new_gid) ? 0 : -ENOMEM;
}

i64 change_by_descriptor(u64 fd, u32 uid, u32 gid) {
    File* f = file_of(static_cast<i32>(fd));
    if (!f || (f->flags & O_PATH_))
        return -EBADF;
    if (own::OwnFile* o = own::own_file(f)) {
        const Args args{{fd, uid, gid}, nullptr};
        return own::handle_call(o, kFchown, args);
    }
    const i32 handle = handle_of(f);
    if (handle < 0) // a pipe or socket in the guest kernel: its owner is fixed
        return (uid == kKeep || uid == gk_shared_page.uid) && (gid == kKeep || gid == gk_shared_page.gid) ? 0 : -EPERM;
    return change_owner(file_of_handle(handle), uid, gid);
}

} // namespace

bool may_change_owner(u32 uid, u32 gid, u32 new_uid, u32 new_gid) {
    const Credentials& who = current->ids;
    if (who.may(kCapChown))
        return true;
    const bool owns = who.user.file == uid;
    return (new_uid == kKeep || (owns && new_uid == uid)) &&
           (new_gid == kKeep || (owns && (new_gid == gid || who.in_group(new_gid))));
}

i64 show_owner(i64 result, u64 at, const NamedFile& named) {
    if (owner_count == 0 || result < 0) [[likely]]
        return result;
    u64 id[2]; // st_dev, st_ino
    if (!get_user(id, at))
        return result;
    const u64 major = (id[0] & 0xfff00) >> 8, minor = (id[0] & 0xff) | (id[0] >> 12 & 0xfff00);
    Statx file;
    if (!*place_of(major << 32 | minor, id[1]) || look(named, file) < 0)
        return result;
    if (const Owner* owner = record_of(file)) {
        const u32 ids[2] = {owner->uid, owner->gid};
        put_user(at + 28, ids); // st_uid, st_gid
    }
    return result;
}

i64 show_owner_in_statx(i64 result, u64 at, const NamedFile& named) {
    Statx reported;
    if (owner_count == 0 || result < 0 || !get_user(reported, at)) [[likely]]
        return result;
    Statx file;
    if (!*place_of(dev_of(reported), reported.ino) || look(named, file) < 0)
        return result;
    if (const Owner* owner = record_of(file)) {
        const u32 ids[2] = {owner->uid, owner->gid};
        put_user(at + offsetof(Statx, uid), ids);
    }
    return result;
}

bool creates_as_other() {
    return current->ids.user.file != gk_shared_page.uid || current->ids.group.file != gk_shared_page.gid;
}

i64 note_created(i64 result, const NamedFile& named) {
    if (result < 0 || !creates_as_other()) [[likely]]
        return result;
    Statx file;
    if (look(named, file) >= 0)
        record(file, current->ids.user.file, current->ids.group.file);
    return result;
}

i64 sys_chown(const Args& c) {
    return change_owner({static_cast<u64>(kAtCwd), c.a[0]}, static_cast<u32>(c.a[1]), static_cast<u32>(c.a[2]));
}
i64 sys_lchown(const Args& c) {
    return change_owner({static_cast<u64>(kAtCwd), c.a[0], kNoFollow}, static_cast<u32>(c.a[1]),
                        static_cast<u32>(c.a[2]));
}
i64 sys_fchown(const Args& c) {
    return change_by_descriptor(c.a[0], static_cast<u32>(c.a[1]), static_cast<u32>(c.a[2]));
}

i64 sys_fchownat(const Args& c) {
    const u64 flags = static_cast<u32>(c.a[4]);
    const u32 uid = static_cast<u32>(c.a[2]), gid = static_cast<u32>(c.a[3]);
    if (flags & ~(kNoFollow | kEmptyPath))
        return -EINVAL;
    char first = 1;
    if (c.a[1] && !get_user(first, c.a[1]))
        return -EFAULT;
    if ((flags & kEmptyPath) && (!c.a[1] || first == 0) && static_cast<i32>(c.a[0]) != kAtCwd) {
        File* f = file_of(static_cast<i32>(c.a[0])); // may be O_PATH, unlike for fchown
        const i32 handle = f ? handle_of(f) : -1;
        if (i64 result; change_own_owner(c.a[0], c.a[1], kEmptyPath, uid, gid, result))
            return result;
        return handle >= 0 ? change_owner(file_of_handle(handle), uid, gid) : change_by_descriptor(c.a[0], uid, gid);
    }
    return change_owner({c.a[0], c.a[1], flags & kNoFollow}, uid, gid);
}

} // namespace gk
