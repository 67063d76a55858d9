// Calls with path arguments. All become their *at form, with a folder handle.
#include "tinykvm/guest/owners.hpp"
#include "tinykvm/guest/path_arg.hpp"
#include "tinykvm/guest/pipe.hpp"

namespace gk {
namespace {

enum Nr : u32 { kFstat = 5, kOpenat = 257, kNewfstatat = 262 };
constexpr u64 kFreshNs = 1'000'000;

// fstat of a file that is not on the host: pipe, socket and the like.
i64 stat_own(File* f, u64 to) {
    struct {
        u64 dev, ino, nlink;
        u32 mode, uid, gid, pad;
        u64 rdev;
        i64 size, block_size, blocks;
        u64 times[6];
        i64 unused[3];
    } s{};
    static_assert(sizeof(s) == 144);
    s.dev = 0xd;
    s.ino = inode_of(f);
    s.nlink = 1;
    s.mode = f->kind == Kind::pipe ? 0010600 : f->kind == Kind::socket ? 0140777 : 0600;
    s.uid = current->ids.user.file;
    s.gid = current->ids.group.file;
    s.block_size = 4096;
    return put_user(to, s) ? 0 : -EFAULT;
}

// statx of such a file: only the basic fields.
i64 statx_own(File* f, u64 to) {
    u8 out[256] = {};
    const u32 mask = 0x7ff, block = 4096;
    const u16 mode = f->kind == Kind::pipe ? 0010600 : f->kind == Kind::socket ? 0140777 : 0600;
    const u64 ino = inode_of(f);
    memcpy(out, &mask, 4);
    memcpy(out + 4, &block, 4);
    memcpy(out + 28, &mode, 2);
    memcpy(out + 32, &ino, 8);
    return copy_to_user(to, out, sizeof(out)) ? 0 : -EFAULT;
}

i64 open_at_host(u64 handle, u64 path, u64 flags, u64 mode) {
    abi::OpenReply reply{};
    publish_self();
    last_content.owner = nullptr;
    const auto try_open = [&](u64 how) {
        return host_call(kOpenat, handle, path, how & ~u64{O_NONBLOCK_}, mode & 07777 & ~creation_mask(),
                         address(&reply), address(last_content.data));
    };
    constexpr u64 kExclusive = 0x80;
    i64 opened = -EEXIST;
    if ((flags & O_CREAT_) && creates_as_other()) { // record the owner only if the call creates the file
        opened = try_open(flags | kExclusive);
        note_created(opened, file_of_handle(static_cast<i32>(opened)));
    }
    if (opened == -EEXIST)
        opened = try_open(flags);
    if (opened < 0)
        return opened;
    HostFile* f = make_host_file(static_cast<i32>(opened),
                                 static_cast<u32>(flags) & ~(O_CLOEXEC_ | O_CREAT_ | 0x80u | 0x100u | 0x200u),
                                 reply.seekable != 0, reply.mode);
    if (!f) {
        host_call(abi::kCloseHandle, static_cast<u64>(opened));
        return -ENOMEM;
    }
    // Programs often open a file, stat it, read it, and read again to find its end. For a millisecond these calls are
    // answered from the host's reply.
    if ((flags & O_ACCMODE_) == 0 && (reply.mode & 0170000) == 0100000) {
        f->fresh_until = now_mono() + kFreshNs;
        f->fresh_changes = file_changes();
        memcpy(f->stat, reply.stat, sizeof(f->stat));
        last_content.owner = f;
        last_content.bytes = reply.content_bytes < abi::kContentBytes ? reply.content_bytes : abi::kContentBytes;
    }
    return install_or_release(f, (flags & O_CLOEXEC_) != 0);
}

// Opens a file through /proc/self/fd. A pipe gets another end; sockets and the like cannot be opened again.
i64 open_again(File* f, u32 flags) {
    constexpr u32 kExclusive = 0xc0;
    if ((flags & kExclusive) == kExclusive)
        return -EEXIST;
    if (flags & O_DIRECTORY_)
        return -ENOTDIR;
    PipeEnd* end = pipe_end(f);
    if (!end || (flags & O_PATH_))
        return -ENXIO;
    if (end->node)
        return own::open_fifo(reinterpret_cast<own::Node*>(end->node), flags);
    PipeEnd* fresh = make_end(end->pipe, flags);
    return fresh ? install_or_release(fresh, (flags & O_CLOEXEC_) != 0) : -ENOMEM;
}

i64 open_at(u64 dir, u64 path, u64 flags, u64 mode) {
    constexpr u64 kNoFollow = 0x20000, kExclusive = 0xc0; // O_CREAT | O_EXCL
    const bool follow = !(flags & kNoFollow) && ((flags & kExclusive) != kExclusive || (flags & O_PATH_));
    return with_path(
        dir, path, follow, false, [&](u64 handle, u64 name) { return open_at_host(handle, name, flags, mode); },
        [&](own::Place& place) { return own::open_place(place, static_cast<u32>(flags), static_cast<u32>(mode)); },
        [&](File* f) { return open_again(f, static_cast<u32>(flags)); });
}

// Whether the call follows a symlink at the end of its path, and whether "" means the descriptor.
void path_rules(u32 nr, u64 flags, bool& follow, bool& empty) {
    constexpr u64 kNoFollow = 0x100, kEmptyPath = 0x1000;
    follow = nr != 258 && nr != 259 && nr != 263 && nr != 267 && !(flags & kNoFollow);
    empty = nr == 267 || (flags & kEmptyPath) != 0;
}
u64 flags_of(u32 nr, u64 a2, u64 a3, u64 a4) {
    switch (nr) {
    case 260: return a4;
    case 262:
    case 280:
    case 439:
    case 452: return a3;
    case 332: return a2;
    default: return 0;
    }
}

} // namespace

i64 path_call(u32 nr, u64 dir, u64 a1, u64 a2, u64 a3, u64 a4, void* reply) {
    bool follow, empty;
    path_rules(nr, flags_of(nr, a2, a3, a4), follow, empty);
    const auto host = [&](u64 handle, u64 path) {
        if (!program_pointer(a2) || !program_pointer(a3) || !program_pointer(a4))
            return i64{-EFAULT};
        return host_call(nr, handle, path, a2, a3, reply ? address(reply) : a4);
    };
    const u64 all[] = {dir, a1, a2, a3, a4};
    return with_path(
        dir, a1, follow, empty, host, [&](own::Place& place) { return own::path_call(place, nr, all); },
        [&](File* f) {
            switch (nr) {
            case kNewfstatat: return stat_own(f, a2);
            case 332: return statx_own(f, a4);
            case 269:
            case 439: return i64{0};
            case 267: return i64{-EINVAL};
            default: return i64{-EPERM};
            }
        });
}

namespace {

constexpr u64 kCwd = kAtCwd;

} // namespace

i64 sys_open(const Args& c) { return open_at(kCwd, c.a[0], c.a[1], c.a[2]); }
i64 sys_creat(const Args& c) { return open_at(kCwd, c.a[0], O_CREAT_ | O_WRONLY_ | 0x200, c.a[1]); }
i64 sys_openat(const Args& c) { return open_at(c.a[0], c.a[1], c.a[2], c.a[3]); }
i64 sys_openat2(const Args& c) {
    struct {
        u64 flags, mode, resolve;
    } how;
    if (c.a[3] < sizeof(how) || !get_user(how, c.a[2]))
        return c.a[3] < sizeof(how) ? -EINVAL : -EFAULT;
    if (how.resolve) // RESOLVE_* is not supported: the host resolves paths by its own rules
        return -EINVAL;
    return open_at(c.a[0], c.a[1], how.flags, how.mode);
}

i64 sys_fstat(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    if (own::OwnFile* o = own::own_file(f))
        return own::handle_call(o, kFstat, c);
    const i32 handle = handle_of(f);
    if (f->kind == Kind::host) {
        const auto* h = static_cast<const HostFile*>(f);
        if (h->fresh())
            return show_owner(copy_to_user(c.a[1], h->stat, sizeof(h->stat)) ? 0 : -EFAULT, c.a[1],
                              file_of_handle(handle));
    }
    return handle >= 0 ? show_owner(pass_call(kFstat, static_cast<u64>(handle), c.a[1]), c.a[1], file_of_handle(handle))
                       : stat_own(f, c.a[1]);
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
        if ((!c.a[1] || first == 0) && static_cast<i32>(c.a[0]) != static_cast<i32>(kAtCwd)) {
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
    if ((c.a[2] & 0x1000) && (!c.a[1] || first == 0) && f && handle_of(f) < 0 && f->kind != Kind::own)
        return statx_own(f, c.a[4]);
    return show_owner_in_statx(path_call(332, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]), c.a[4],
                               {c.a[0], c.a[1], c.a[2]});
}
i64 sys_access(const Args& c) { return path_call(269, kCwd, c.a[0], c.a[1]); }
i64 sys_mkdirat(const Args& c) {
    return note_created(path_call(258, c.a[0], c.a[1], c.a[2] & 07777 & ~creation_mask()), {c.a[0], c.a[1]});
}
i64 sys_mkdir(const Args& c) { return sys_mkdirat({{kCwd, c.a[0], c.a[1]}, c.regs}); }
i64 sys_mknodat(const Args& c) {
    return note_created(path_call(259, c.a[0], c.a[1], c.a[2] & ~u64{creation_mask()}, c.a[3]), {c.a[0], c.a[1]});
}
i64 sys_mknod(const Args& c) { return sys_mknodat({{kCwd, c.a[0], c.a[1], c.a[2]}, c.regs}); }

namespace {
// Cache for realpath(3), which calls readlink for each folder of a path. With the answer for a link, the host returns a
// prefix of its target that contains no more links. For a millisecond, readlink calls for that prefix need no exit.
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
    if (known_plain(c.a[1]))
        return -EINVAL;
    plain.reply.bytes = 0;
    const i64 result = path_call(267, c.a[0], c.a[1], c.a[2], c.a[3], 0, &plain.reply);
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

bool change_own_owner(u64 dir, u64 path, u64 flags, u32 uid, u32 gid, i64& result) {
    PathArg arg;
    if (arg.take(dir, path, !(flags & 0x100), (flags & 0x1000) != 0) < 0 || !arg.own() || !arg.place().node ||
        arg.place().error < 0)
        return false;
    const u64 all[] = {dir, path, uid, gid, flags};
    result = own::path_call(arg.place(), 260, all);
    return true;
}

namespace {

// Calls with two paths: both must be on the host, or both in the machine's own folders; else EXDEV.
template <class Host, class Mine>
i64 two_paths(u64 d1, u64 p1, u64 d2, u64 p2, bool follow, bool empty, Host host, Mine mine) {
    PathArg from, to;
    i64 error = from.take(d1, p1, follow, empty);
    if (error == 0)
        error = to.take(d2, p2, false);
    if (error < 0)
        return error;
    if (from.file() || to.file())
        return -EXDEV;
    if ((!from.own() || from.may_be_hosts()) && (!to.own() || to.may_be_hosts())) {
        if (from.own())
            from.use_hosts();
        if (to.own())
            to.use_hosts();
        const i64 result = host(from, to);
        if (result != -abi::kOwnPath)
            return result;
    }
    PathArg* const both[] = {&from, &to};
    for (PathArg* arg : both)
        if (arg->may_be_hosts()) { // not in the machine's own folder, but the host may have it
            u8 stat[144];
            arg->use_hosts();
            if (host_call(kNewfstatat, arg->handle(), arg->path(), address(stat), 0x100) != -abi::kOwnPath)
                return -EXDEV;
        }
    for (PathArg* arg : both)
        if (!arg->own()) { // only the host can tell whether this path leads to one of the machine's own folders
            const bool through = follow && arg == &from;
            u8 stat[144];
            if (host_call(kNewfstatat, arg->handle(), arg->path(), address(stat), through ? 0 : 0x100) !=
                -abi::kOwnPath)
                return -EXDEV;
            if (error = arg->take_from_host(through); error < 0)
                return error;
        }
    return mine(from.place(), to.place());
}

i64 rename_at(u64 d1, u64 p1, u64 d2, u64 p2, u64 flags) {
    return two_paths(
        d1, p1, d2, p2, false, false,
        [&](PathArg& a, PathArg& b) { return host_call(316, a.handle(), a.path(), b.handle(), b.path(), flags); },
        [&](own::Place& a, own::Place& b) { return own::rename(a, b, static_cast<u32>(flags)); });
}
i64 link_at(u64 d1, u64 p1, u64 d2, u64 p2, u64 flags) {
    constexpr u64 kFollow = 0x400, kEmptyPath = 0x1000;
    if (flags & ~(kFollow | kEmptyPath))
        return -EINVAL;
    const auto host = [&](PathArg& a, PathArg& b) {
        static const char nothing[1] = {};
        if (const HostFile* f = a.hosts_file()) // use the descriptor: the file may have no name yet (O_TMPFILE)
            return host_call(265, static_cast<u64>(f->handle), address(nothing), b.handle(), b.path(), kEmptyPath);
        return host_call(265, a.handle(), a.path(), b.handle(), b.path(), flags);
    };
    return two_paths(d1, p1, d2, p2, (flags & kFollow) != 0, (flags & kEmptyPath) != 0, host,
                     [&](own::Place& a, own::Place& b) { return own::link(a, b); });
}
i64 symlink_at(u64 target, u64 dir, u64 path) {
    own::PathBuffer text;
    if (!text.make())
        return -ENOMEM;
    const i64 length = string_from_user(text.text(), target, own::kMaxPath);
    if (length <= 0)
        return length == 0 ? -ENOENT : length;
    const auto host = [&](u64 handle, u64 name) { return host_call(266, address(text.text()), handle, name); };
    const i64 result =
        with_path(dir, path, false, false, host, [&](own::Place& place) { return own::symlink(text.text(), place); });
    return note_created(result, {dir, path, 0x100});
}

} // namespace
i64 sys_rename(const Args& c) { return rename_at(kCwd, c.a[0], kCwd, c.a[1], 0); }
i64 sys_renameat(const Args& c) { return rename_at(c.a[0], c.a[1], c.a[2], c.a[3], 0); }
i64 sys_renameat2(const Args& c) { return rename_at(c.a[0], c.a[1], c.a[2], c.a[3], c.a[4] & 0xffffffff); }
i64 sys_link(const Args& c) { return link_at(kCwd, c.a[0], kCwd, c.a[1], 0); }
i64 sys_linkat(const Args& c) { return link_at(c.a[0], c.a[1], c.a[2], c.a[3], c.a[4] & 0xffffffff); }
i64 sys_symlink(const Args& c) { return symlink_at(c.a[0], kCwd, c.a[1]); }
i64 sys_symlinkat(const Args& c) { return symlink_at(c.a[0], c.a[1], c.a[2]); }

// Calls whose first argument is a path, without a folder: truncate, statfs, xattr.
i64 sys_lone_path(const Args& given) {
    const Args c = only_arguments(given);
    const u32 nr = static_cast<u32>(c.regs->orig_rax);
    const bool follow = nr != 189 && nr != 192 && nr != 195 && nr != 198;
    const u64 all[] = {kCwd, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]};
    for (u32 i = 1; i < 5; ++i)
        if (!program_pointer(c.a[i]))
            return -EFAULT;
    return with_path(
        kCwd, c.a[0], follow, false, [&](u64, u64 path) { return host_call(nr, path, c.a[1], c.a[2], c.a[3], c.a[4]); },
        [&](own::Place& place) { return own::path_call(place, nr, all); });
}

i64 sys_chdir(const Args& c) {
    const u64 all[] = {kCwd, c.a[0]};
    const auto host = [&](u64, u64 path) {
        const i64 result = host_call(80, path);
        if (result == 0)
            own::set_current_folder(nullptr);
        return result;
    };
    return with_path(kCwd, c.a[0], true, false, host,
                     [&](own::Place& place) { return own::path_call(place, 80, all); });
}

i64 sys_fchdir(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    if (own::OwnFile* o = own::own_file(f))
        return own::handle_call(o, 81, c);
    const i32 handle = handle_of(f);
    const i64 result = handle < 0 ? -ENOTDIR : host_call(81, static_cast<u64>(handle));
    if (result == 0)
        own::set_current_folder(nullptr);
    return result;
}

i64 sys_getcwd(const Args& c) {
    own::Node* n = own::current_folder();
    if (!n)
        return pass_call(79, c.a[0], c.a[1]);
    own::PathBuffer text;
    if (!text.make())
        return -ENOMEM;
    const i64 bytes = own::path_of(n, text.text(), own::kMaxPath);
    if (bytes < 0)
        return bytes;
    if (static_cast<u64>(bytes) > c.a[1])
        return -ERANGE;
    return copy_to_user(c.a[0], text.text(), static_cast<u64>(bytes)) ? bytes : -EFAULT;
}

// Calls that already are in the *at form.
i64 sys_path_call(const Args& given) {
    const Args c = only_arguments(given);
    if (c.regs->orig_rax == 280 && c.a[1] == 0) // futimens
        if (own::OwnFile* o = own::own_file(file_of(static_cast<i32>(c.a[0]))))
            return c.a[3] ? -EINVAL : own::handle_call(o, 280, c);
    if (c.regs->orig_rax == 280 && c.a[1] == 0) {
        File* f = file_of(static_cast<i32>(c.a[0]));
        const i32 handle = f ? handle_of(f) : -1;
        return handle < 0 ? -EBADF : pass_call(280, static_cast<u64>(handle), 0, c.a[2], c.a[3]);
    }
    return path_call(static_cast<u32>(c.regs->orig_rax), c.a[0], c.a[1], c.a[2], c.a[3], c.a[4]);
}

} // namespace gk
