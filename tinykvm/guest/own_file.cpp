// Open files of the machine's own folders.
#include "tinykvm/guest/limits.hpp"
#include "tinykvm/guest/own_files.hpp"

namespace gk::own {
namespace {

enum : u32 {
    kCreat = 0x40,
    kExcl = 0x80,
    kTrunc = 0x200,
    kTmpFileBit = 0x400000,
    kNoFollow = 0x20000,
    kDirect = 0x4000,
    kNoAtime = 0x40000,
    kLargeFile = 0x8000
};
constexpr u32 kNotKept = kCreat | kExcl | 0x100 | kTrunc | O_CLOEXEC_; // flags of open() that F_GETFL does not return

i64 own_read(File* f, Cursor& c, i64 offset) {
    auto* o = static_cast<OwnFile*>(f);
    if (o->node->is_folder())
        return -EISDIR;
    const i64 n = read_at(o->node, c, offset >= 0 ? static_cast<u64>(offset) : o->offset);
    if (n > 0 && offset < 0)
        o->offset += static_cast<u64>(n);
    if (n > 0 && !(f->flags & kNoAtime) && o->node->accessed <= o->node->modified)
        o->node->accessed = now_real(); // relatime
    return n;
}

i64 own_write(File* f, Cursor& c, i64 offset) {
    auto* o = static_cast<OwnFile*>(f);
    // With O_APPEND, pwrite appends too (pwrite(2), BUGS).
    const u64 at = (f->flags & O_APPEND_) ? o->node->content.size : offset >= 0 ? static_cast<u64>(offset) : o->offset;
    u64 most = c.left;
    if (const i64 error = within_file_limit(at, most); error < 0)
        return error;
    if (most < c.left)
        c.shorten(most);
    const i64 n = write_at(o->node, c, at);
    if (n > 0 && offset < 0)
        o->offset = at + static_cast<u64>(n);
    if (n > 0)
        note(o->node, kNoteModify);
    return n;
}

u32 own_poll(File*) { return POLLIN_ | POLLOUT_ | POLLRDNORM_ | POLLWRNORM_; }

void own_close(File* f) {
    auto* o = static_cast<OwnFile*>(f);
    if (!(f->flags & O_PATH_))
        note(o->node, (f->flags & O_ACCMODE_) ? kNoteCloseWrite : kNoteClose);
    drop_locks(o);
    drop(o->node);
    destroy(o);
}

const FileOps own_ops{own_read, own_write, own_poll, own_close, "file"};

i64 may_open(const Node* n, u32 flags) {
    const u32 mode = flags & O_ACCMODE_;
    const u32 want = (mode == 0 ? 4u : mode == O_WRONLY_ ? 2u : 6u) | ((flags & kTrunc) ? 2u : 0u);
    if (n->is_folder() && ((want & 2) || (flags & kCreat)))
        return -EISDIR;
    if (!permitted(n, want))
        return -EACCES;
    if ((flags & kNoAtime) && !owns(n))
        return -EPERM;
    if ((flags & kDirect) && n->is_folder())
        return -EINVAL;
    return 0;
}

} // namespace

i64 open_node(Node* n, u32 flags) {
    if (n->format() == kFifo && !(flags & O_PATH_))
        return open_fifo(n, flags);
    auto* f = make<OwnFile>();
    if (!f)
        return -ENOMEM;
    f->ops = &own_ops;
    f->kind = Kind::own;
    f->flags = (flags & O_PATH_) ? flags & (O_PATH_ | O_DIRECTORY_ | kNoFollow) : (flags & ~kNotKept) | kLargeFile;
    f->node = n;
    keep(n);
    if (!(flags & O_PATH_))
        note(n, kNoteOpen);
    return install_or_release(f, (flags & O_CLOEXEC_) != 0);
}

namespace {

i64 create(Place& place, u32 flags, u32 mode) {
    if (place.must_be_folder)
        return -EISDIR;
    if (!permitted(place.folder, 3))
        return -EACCES;
    Node* n = new_node(kRegular | (mode & 07777 & ~creation_mask()), place.folder);
    if (!n)
        return -ENOSPC;
    keep(n);
    i64 result = add_entry(place.folder, place.name, place.length, n);
    if (result == 0) {
        note_name(place.folder, place.name, place.length, n, kNoteCreate);
        result = open_node(n, flags);
        if (result < 0)
            remove_entry(find_entry(place.folder, place.name, place.length));
    }
    drop(n);
    return result;
}

i64 open_unnamed(Place& place, u32 flags, u32 mode) {
    if (!place.node)
        return -ENOENT;
    if (!place.node->is_folder())
        return -ENOTDIR;
    if ((flags & O_ACCMODE_) == 0)
        return -EINVAL;
    if (!permitted(place.node, 3))
        return -EACCES;
    Node* n = new_node(kRegular | (mode & 07777 & ~creation_mask()), place.node);
    if (!n)
        return -ENOSPC;
    keep(n);
    const i64 fd = open_node(n, flags & ~(u32{kTmpFileBit} | O_DIRECTORY_));
    if (OwnFile* f = fd >= 0 ? own_file(file_of(static_cast<i32>(fd))) : nullptr)
        f->flags |= u32{kTmpFileBit} | O_DIRECTORY_ | ((flags & kExcl) ? kExcl : 0u);
    drop(n);
    return fd;
}

} // namespace

i64 open_place(Place& place, u32 flags, u32 mode) {
    if (place.error < 0)
        return place.error;
    const bool path_only = (flags & O_PATH_) != 0;
    if (!path_only && (flags & kTmpFileBit))
        return (flags & O_DIRECTORY_) ? open_unnamed(place, flags, mode) : -EINVAL;
    if (!path_only && (flags & kCreat) && (flags & O_DIRECTORY_))
        return -EINVAL;
    Node* n = place.node;
    if (!n)
        return !path_only && (flags & kCreat) ? create(place, flags, mode) : -ENOENT;
    if (path_only)
        return (flags & O_DIRECTORY_) && !n->is_folder() ? -ENOTDIR : open_node(n, flags);
    if ((flags & (kCreat | kExcl)) == (kCreat | kExcl))
        return -EEXIST;
    if (n->format() == kLink)
        return (flags & O_DIRECTORY_) ? -ENOTDIR : -ELOOP;
    if ((flags & O_DIRECTORY_) && !n->is_folder())
        return -ENOTDIR;
    if (const i64 error = may_open(n, flags); error < 0)
        return error;
    if (n->format() == kSocket)
        return -ENXIO;
    const i64 fd = open_node(n, flags);
    if (fd >= 0 && (flags & kTrunc) && n->format() == kRegular) {
        set_size(n, 0);
        content_changed(n);
        note(n, kNoteModify);
    }
    return fd;
}

i64 seek(OwnFile* f, i64 offset, u32 whence) {
    if (f->flags & O_PATH_)
        return -EBADF;
    i64 base = 0;
    switch (whence) {
    case 0: break;
    case 1: base = static_cast<i64>(f->offset); break;
    case 2: base = f->node->is_folder() ? 0 : f->node->size(); break;
    case 3:
    case 4:
        base = seek_data(f, offset, whence == 4);
        if (base < 0)
            return base;
        offset = 0;
        break;
    default: return -EINVAL;
    }
    i64 at;
    if (__builtin_add_overflow(base, offset, &at) || at < 0)
        return -EINVAL;
    f->offset = static_cast<u64>(at);
    return at;
}

i64 list(OwnFile* f, u64 to, u64 bytes) {
    Node* n = f->node;
    if (!n->is_folder())
        return -ENOTDIR;
    if (!n->parent)
        return -ENOENT;
    struct Head {
        u64 ino;
        i64 next;
        u16 length;
        u8 type;
        char name[kMaxName + 1];
    } __attribute__((packed)) entry;
    u64 done = 0;
    const auto put = [&](u64 ino, u64 cookie, u32 format, const char* name, u32 length) {
        const u64 size = (19 + length + 1 + 7) & ~u64{7};
        if (done + size > bytes)
            return done ? 0 : -EINVAL;
        memset(&entry, 0, sizeof(entry));
        entry.ino = ino;
        entry.next = static_cast<i64>(cookie);
        entry.length = static_cast<u16>(size);
        entry.type = static_cast<u8>(format >> 12);
        memcpy(entry.name, name, length);
        if (!copy_to_user(to + done, &entry, size))
            return done ? i64{0} : -EFAULT;
        done += size;
        f->offset = cookie;
        return i64{1};
    };
    const char dots[] = "..";
    for (u32 i = 1; i <= 2; ++i)
        if (f->offset < i)
            if (const i64 result = put(i == 1 ? n->ino : n->parent->ino, i, kDirectory, dots, i); result <= 0)
                return result < 0 ? result : static_cast<i64>(done);
    for (const Entry* e = n->first; e; e = e->next)
        if (e->cookie > f->offset)
            if (const i64 result = put(e->node->ino, e->cookie, e->node->format(), e->name, e->length); result <= 0)
                return result < 0 ? result : static_cast<i64>(done);
    n->accessed = now_real();
    return static_cast<i64>(done);
}

void fill_stat(const Node* n, void* to) {
    struct {
        u64 dev, ino, links;
        u32 mode, uid, gid, pad;
        u64 rdev;
        i64 size, block_size, blocks;
        Timespec times[3];
        i64 unused[3];
    } s{};
    static_assert(sizeof(s) == 144);
    s.dev = 0x20 + n->volume;
    s.ino = n->ino;
    s.links = n->links;
    s.mode = n->mode;
    s.uid = n->uid;
    s.gid = n->gid;
    s.size = n->is_folder() ? static_cast<i64>(20 * (n->entries + 2)) : n->size();
    s.block_size = 4096;
    s.blocks = static_cast<i64>(n->pages * 8);
    s.times[0] = from_ns(n->accessed);
    s.times[1] = from_ns(n->modified);
    s.times[2] = from_ns(n->changed);
    memcpy(to, &s, sizeof(s));
}

} // namespace gk::own
