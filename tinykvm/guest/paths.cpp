// Calls that name paths: all become the form with a folder's handle.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/owners.hpp"

namespace gk {
namespace {

enum Nr : u32 { kFstat = 5, kOpenat = 257, kNewfstatat = 262 };
constexpr i32 kAtCwd = -100;
constexpr u64 kFreshNs = 1'000'000;
constexpr i32 cwd_handle = abi::kHandleCwd; // chdir(2) puts another folder behind it

bool directory_handle(u64 fd, i32& handle) {
    if (static_cast<i32>(fd) == kAtCwd) {
        handle = cwd_handle;
        return true;
    }
    File* f = file_of(static_cast<i32>(fd));
    handle = f ? handle_of(f) : -1;
    return handle >= 0;
}

i64 open_at(u64 dir, u64 path, u64 flags, u64 mode) {
    i32 handle;
    char first = 0;
    if (!get_user(first, path))
        return -EFAULT;
    if (!directory_handle(dir, handle)) {
        if (first != '/')
            return -EBADF;
        handle = cwd_handle;
    }
    abi::OpenReply reply{};
    last_content.owner = nullptr;
    const auto try_open = [&](u64 how) {
        return host_call(kOpenat, static_cast<u64>(handle), path, how & ~u64{O_NONBLOCK_}, mode & 07777 & ~creation_mask(), address(&reply),
                         address(last_content.data));
    };
    constexpr u64 kExclusive = 0x80;
    i64 opened = -EEXIST;
    if ((flags & O_CREAT_) && creates_as_other()) { // only what it creates becomes its own
        opened = try_open(flags | kExclusive);
        note_created(opened, file_of_handle(static_cast<i32>(opened)));
    }
    if (opened == -EEXIST)
        opened = try_open(flags);
    if (opened < 0)
        return opened;
    HostFile* f = make_host_file(static_cast<i32>(opened), static_cast<u32>(flags) & ~(O_CLOEXEC_ | O_CREAT_ | 0x80u | 0x100u | 0x200u),
                                 reply.seekable != 0, reply.mode);
    if (!f) {
        host_call(abi::kCloseHandle, static_cast<u64>(opened));
        return -ENOMEM;
    }
    // Programs ask for the status of a file right after they opened it, read it, and read once more to see its end: for a
    // millisecond all are answered from what the host said.
    if ((flags & O_ACCMODE_) == 0 && (reply.mode & 0170000) == 0100000) {
        f->fresh_until = now_mono() + kFreshNs;
        f->fresh_changes = file_changes();
        memcpy(f->stat, reply.stat, sizeof(f->stat));
        last_content.owner = f;
        last_content.bytes = reply.content_bytes < abi::kContentBytes ? reply.content_bytes : abi::kContentBytes;
    }
    return install_or_release(f, (flags & O_CLOEXEC_) != 0);
}

} // namespace

i64 path_call(u32 nr, u64 dir, u64 a1, u64 a2, u64 a3, u64 a4, void* reply) {
    i32 handle;
    if (!directory_handle(dir, handle)) {
        char first = 0;
        if (a1 && !get_user(first, a1))
            return -EFAULT;
        if (first != '/')
            return file_of(static_cast<i32>(dir)) ? -ENOTDIR : -EBADF;
        handle = cwd_handle;
    }
    if (reply)
        return user_ok(a1, 0) && user_ok(a2, 0) ? host_call(nr, static_cast<u64>(static_cast<i64>(handle)), a1, a2, a3, address(reply)) : -EFAULT;
    return pass_call(nr, static_cast<u64>(static_cast<i64>(handle)), a1, a2, a3, a4);
}

namespace {

constexpr u64 kCwd = static_cast<u64>(static_cast<i64>(kAtCwd));

// fstat of what has no host file behind it.
i64 stat_own(File* f, u64 to) {
    struct { u64 dev, ino, nlink; u32 mode, uid, gid, pad; u64 rdev; i64 size, block_size, blocks; u64 times[6]; i64 unused[3]; } s{};
    static_assert(sizeof(s) == 144);
    s.dev = 0xd;
    s.ino = address(f) >> 5 & 0xffffffff;
    s.nlink = 1;
    s.mode = f->kind == Kind::pipe ? 0010600 : f->kind == Kind::socket || f->kind == Kind::pair ? 0140777 : 0600;
    s.uid = current->ids.user.file;
    s.gid = current->ids.group.file;
    s.block_size = 4096;
    return put_user(to, s) ? 0 : -EFAULT;
}

} // namespace

i64 sys_open(const Args& c) { return open_at(kCwd, c.a[0], c.a[1], c.a[2]); }
i64 sys_creat(const Args& c) { return open_at(kCwd, c.a[0], O_CREAT_ | O_WRONLY_ | 0x200, c.a[1]); }
i64 sys_openat(const Args& c) { return open_at(c.a[0], c.a[1], c.a[2], c.a[3]); }
i64 sys_openat2(const Args& c) {
    struct { u64 flags, mode, resolve; } how;
    if (c.a[3] < sizeof(how) || !get_user(how, c.a[2]))
        return c.a[3] < sizeof(how) ? -EINVAL : -EFAULT;
    if (how.resolve) // paths are resolved by the host's own rules
        return -EINVAL;
    return open_at(c.a[0], c.a[1], how.flags, how.mode);
}

i64 sys_fstat(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    const i32 handle = handle_of(f);
    if (f->kind == Kind::host) {
        const auto* h = static_cast<const HostFile*>(f);
        if (h->fresh())
            return show_owner(copy_to_user(c.a[1], h->stat, sizeof(h->stat)) ? 0 : -EFAULT, c.a[1], file_of_handle(handle));
    }
    return handle >= 0 ? show_owner(pass_call(kFstat, static_cast<u64>(handle), c.a[1]), c.a[1], file_of_handle(handle)) : stat_own(f, c.a[1]);
}

namespace {
i64 stat_at(u64 dir, u64 path, u64 to, u64 flags) {
    return show_owner(path_call(kNewfstatat, dir, path, to, flags), to, {dir, path, flags});
}
} // namespace

i64 sys_newfstatat(const Args& c) {
    constexpr u64 kEmptyPath = 0x1000;
    if (c.a[3] & kEmptyPath) {
        char first = 1;
        if (c.a[1] && !get_user(first, c.a[1]))
            return -EFAULT;
        if ((!c.a[1] || first == 0) && static_cast<i32>(c.a[0]) != kAtCwd) {
            Args f = c;
            f.a[1] = c.a[2];
            return sys_fstat(f);
        }
    }
    return stat_at(c.a[0], c.a[1], c.a[2], c.a[3]);
}
i64 sys_stat(const Args& c) { return stat_at(kCwd, c.a[0], c.a[1], 0); }
i64 sys_lstat(const Args& c) { return stat_at(kCwd, c.a[0], c.a[1], 0x100); }
i64 sys_statx(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    char first = 1;
    if (c.a[1] && !get_user(first, c.a[1]))
        return -EFAULT;
    if ((c.a[2] & 0x1000) && (!c.a[1] || first == 0) && f && handle_of(f) < 0) {
        // A pipe or socket of ours: what statx(2) says of it is little.
        u8 out[256] = {};
        const u32 mask = 0x7ff, block = 4096;
        const u16 mode = f->kind == Kind::pipe ? 0010600 : f->kind == Kind::socket || f->kind == Kind::pair ? 0140777 : 0600;
        memcpy(out, &mask, 4);
        memcpy(out + 4, &block, 4);
        memcpy(out + 28, &mode, 2);
        return copy_to_user(c.a[4], out, sizeof(out)) ? 0 : -EFAULT;
    }
    return show_owner_in_statx(path_call(332, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]), c.a[4], {c.a[0], c.a[1], c.a[2]});
}
i64 sys_access(const Args& c) { return path_call(269, kCwd, c.a[0], c.a[1]); }
i64 sys_mkdirat(const Args& c) {
    return note_created(path_call(258, c.a[0], c.a[1], c.a[2] & 07777 & ~creation_mask()), {c.a[0], c.a[1]});
}
i64 sys_mkdir(const Args& c) { return sys_mkdirat({{kCwd, c.a[0], c.a[1]}, c.regs}); }

namespace {
// /proc/self/fd/N: the descriptors are ours. Returns false when the path is another.
bool descriptor_link(u64 path, u64 to, u64 room, i64& result) {
    constexpr char prefix[] = "/proc/self/fd/";
    char text[32];
    const i64 length = string_from_user(text, path, sizeof(text));
    if (length <= static_cast<i64>(sizeof(prefix)) - 1)
        return false;
    for (u64 i = 0; i < sizeof(prefix) - 1; ++i)
        if (text[i] != prefix[i])
            return false;
    i32 fd = 0;
    for (const char* p = text + sizeof(prefix) - 1; *p; ++p) {
        if (*p < '0' || *p > '9' || fd > 1'000'000)
            return false;
        fd = fd * 10 + (*p - '0');
    }
    File* f = file_of(fd);
    if (!f) {
        result = -ENOENT;
        return true;
    }
    if (static_cast<i32>(room) <= 0) {
        result = -EINVAL;
        return true;
    }
    if (const i32 handle = handle_of(f); handle >= 0 && f->kind == Kind::host) {
        result = pass_call(abi::kHandlePath, static_cast<u64>(handle), to, room);
        return true;
    }
    // "pipe:[7]" and the like; the number is the one that fstat gives.
    char name[64];
    u64 at = 0;
    const char* kind = f->kind == Kind::socket || f->kind == Kind::pair ? "socket" : f->ops->name;
    while (kind[at])
        name[at] = kind[at], ++at;
    if (kind[0] != 'a') { // not anon_inode:[...]
        name[at++] = ':';
        name[at++] = '[';
        char digits[20];
        u32 n = 0;
        for (u64 number = address(f) >> 5 & 0xffffffff; number || n == 0; number /= 10)
            digits[n++] = static_cast<char>('0' + number % 10);
        while (n)
            name[at++] = digits[--n];
        name[at++] = ']';
    }
    if (at > room)
        at = room;
    result = copy_to_user(to, name, at) ? static_cast<i64>(at) : -EFAULT;
    return true;
}
} // namespace

namespace {
// realpath(3) reads each folder above a path as if it were a link. With the first link that it finds the host tells which
// path beneath its target holds no more of them: for a millisecond those questions need no exit.
struct PlainPath {
    u64 until;
    u64 changes;
    abi::LinkReply reply;
} plain;

bool known_plain(u64 path) {
    char text[sizeof(plain.reply.plain)];
    if (plain.reply.bytes == 0 || plain.changes != file_changes() || now_mono() >= plain.until)
        return false;
    const i64 length = string_from_user(text, path, sizeof(text));
    if (length < 2 || static_cast<u64>(length) > plain.reply.bytes)
        return false;
    for (i64 i = 0; i < length; ++i)
        if (text[i] != plain.reply.plain[i])
            return false;
    return static_cast<u64>(length) == plain.reply.bytes || plain.reply.plain[length] == '/';
}
} // namespace

i64 sys_readlinkat(const Args& c) {
    i64 result = 0;
    if (descriptor_link(c.a[1], c.a[2], c.a[3], result))
        return result;
    if (known_plain(c.a[1]))
        return -EINVAL;
    plain.reply.bytes = 0;
    result = path_call(267, c.a[0], c.a[1], c.a[2], c.a[3], 0, &plain.reply);
    plain.until = now_mono() + kFreshNs;
    plain.changes = file_changes();
    if (plain.reply.bytes > sizeof(plain.reply.plain))
        plain.reply.bytes = 0;
    return result;
}
i64 sys_readlink(const Args& c) {
    Args d = c;
    d.a[0] = kCwd;
    d.a[1] = c.a[0];
    d.a[2] = c.a[1];
    d.a[3] = c.a[2];
    return sys_readlinkat(d);
}
i64 sys_rmdir(const Args& c) { return path_call(263, kCwd, c.a[0], 0x200); }
i64 sys_unlink(const Args& c) { return path_call(263, kCwd, c.a[0], 0); }
i64 sys_chmod(const Args& c) { return path_call(268, kCwd, c.a[0], c.a[1]); }

namespace {
i64 two_paths(u32 nr, u64 d1, u64 p1, u64 d2, u64 p2, u64 flags) {
    i32 h1, h2;
    if (!directory_handle(d1, h1))
        h1 = cwd_handle;
    if (!directory_handle(d2, h2))
        h2 = cwd_handle;
    return pass_call(nr, static_cast<u64>(h1), p1, static_cast<u64>(h2), p2, flags);
}
} // namespace
i64 sys_rename(const Args& c) { return two_paths(316, kCwd, c.a[0], kCwd, c.a[1], 0); }
i64 sys_renameat(const Args& c) { return two_paths(316, c.a[0], c.a[1], c.a[2], c.a[3], 0); }
i64 sys_renameat2(const Args& c) { return two_paths(316, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]); }
i64 sys_link(const Args& c) { return two_paths(265, kCwd, c.a[0], kCwd, c.a[1], 0); }
i64 sys_linkat(const Args& c) { return two_paths(265, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]); }
i64 sys_symlink(const Args& c) { return note_created(pass_call(266, c.a[0], static_cast<u64>(cwd_handle), c.a[1]), {kCwd, c.a[1], 0x100}); }
i64 sys_symlinkat(const Args& c) {
    i32 handle;
    if (!directory_handle(c.a[1], handle))
        handle = cwd_handle;
    return note_created(pass_call(266, c.a[0], static_cast<u64>(handle), c.a[2]), {c.a[1], c.a[2], 0x100});
}

// Calls whose first argument is a directory and the rest is as the program gave it.
i64 sys_path_call(const Args& given) {
    const Args c = only_arguments(given);
    return path_call(static_cast<u32>(c.regs->orig_rax), c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]);
}

} // namespace gk
