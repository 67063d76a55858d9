// Opens the result of a walk: checks the rights, then opens without following links.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/policy_walk.hpp"

namespace tinykvm {

namespace {

constexpr int kExclusive = O_CREAT | O_EXCL;
// The flags that are passed to the host. Excluded are O_APPEND (see Policy::open), O_DIRECT, which would need aligned
// guest memory, and O_NOATIME, which needs ownership.
constexpr int kHostFlags =
    O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_DIRECTORY | O_NOFOLLOW | O_SYNC | O_DSYNC | O_PATH | O_TMPFILE;

// O_TMPFILE: an unnamed file in the folder at the path.
bool is_unnamed(int flags) { return !(flags & O_PATH) && (flags & O_TMPFILE) == O_TMPFILE; }

bool is_exclusive(int flags) { return (flags & kExclusive) == kExclusive; }

// The guest's flags, adapted to openat2, which refuses the flags that open() ignores with O_PATH.
int host_flags(int flags) {
    if (flags & O_PATH)
        return flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW);
    flags = (flags & kHostFlags) | O_NONBLOCK | O_NOCTTY;
    return (flags & O_CREAT) || is_unnamed(flags) ? flags : flags & ~O_EXCL;
}

Rights needed(int flags) {
    if (flags & O_PATH)
        return kLookup;
    if (is_unnamed(flags))
        return kLookup | kRead | kWrite | kChange;
    Rights need = (flags & O_TRUNC) ? kLookup | kWrite : kLookup;
    if ((flags & O_ACCMODE) != O_WRONLY)
        need |= kRead;
    if ((flags & O_ACCMODE) != O_RDONLY)
        need |= kWrite;
    return need;
}

// Set-user-ID and set-group-ID files are never created on the host.
unsigned host_mode(unsigned mode) { return mode & 0777; }

bool is_special(std::string_view path) {
    return is_beneath(path, "/proc") || is_beneath(path, "/sys") || is_beneath(path, "/dev");
}

} // namespace

OpenedPath Policy::open(std::string_view path, int flags, unsigned mode, const SelfFacts& self) const {
    OpenedPath opened;
    if (path.empty() || path.front() != '/')
        opened.error = ENOENT;
    else if (path.size() > kMaxPath)
        opened.error = ENAMETOOLONG;
    else if (is_unnamed(flags) ? (flags & O_CREAT) || (flags & O_ACCMODE) == O_RDONLY
                               : !(flags & O_PATH) && (flags & O_TMPFILE & ~O_DIRECTORY))
        opened.error = EINVAL;
    else if (!(flags & O_PATH) && (flags & O_CREAT) && (flags & O_DIRECTORY))
        opened.error = EINVAL;
    if (opened.error != 0 || open_quickly(opened, path, flags, mode))
        return opened;

    const bool follow = !(flags & O_NOFOLLOW) && !(is_exclusive(flags) && !(flags & O_PATH));
    for (int attempt = 0; attempt < kWalkAttempts; ++attempt) {
        const Walk found = walk(path, follow, self);
        opened = OpenedPath();
        opened.path = found.path;
        if (found.error == kOwnPath ||
            (!found.exists && (found.error == 0 || found.error == ENOENT) && is_own_if_missing(found.path))) {
            opened.error = kOwnPath;
            return opened;
        }
        if (found.synthetic != SyntheticFiles::Kind::none) {
            open_synthetic(opened, found, flags, self);
            return opened;
        }
        if (open_walked(opened, found, flags, mode))
            return opened;
    }
    opened.error = ELOOP;
    return opened;
}

// Fast path for the usual case, with one system call: the path has no "..", is not special, and is permitted as
// written. If a component is a symlink, the open fails. False: a walk must decide.
bool Policy::open_quickly(OpenedPath& opened, std::string_view path, int flags, unsigned mode) const {
    const PathText text = cut_path(path);
    const std::string clean = join_parts(text.parts);
    const bool creating = (flags & O_CREAT) && !(flags & O_PATH);
    const Rights need = needed(flags) | (creating ? kChange : 0);
    const Rights have = rights_of(clean);
    if (text.dots || is_special(clean) || own_folder_of(clean) || (need & ~have) != 0 ||
        (creating && text.must_be_directory))
        return false;
    if (creating && tree_.leads_to_mount(clean))
        return false; // the guest sees a folder there: do not create a file in its place on the host
    // "link/" means the folder that the link leads to, even with O_NOFOLLOW.
    const int asked = text.must_be_directory ? (host_flags(flags) & ~O_NOFOLLOW) | O_DIRECTORY : host_flags(flags);
    const int fd = tree_.open(clean, asked, host_mode(mode));
    if (fd == -ELOOP || (fd == -ENOENT && tree_.leads_to_mount(clean)))
        return false;
    opened.path = clean;
    opened.rights = have;
    opened.error = fd < 0 ? -fd : 0;
    opened.fd = UniqueFd(fd < 0 ? -1 : fd);
    return true;
}

bool Policy::open_walked(OpenedPath& opened, const Walk& found, int flags, unsigned mode) const {
    const bool creating = (flags & O_CREAT) && !(flags & O_PATH);
    const Rights have = opened.rights = rights_of(found.path);
    Rights need = needed(flags);
    if (!(have & kLookup)) {
        opened.error = check(found.path, need | (creating ? kChange : 0), opened.refused);
        return true;
    }
    if (!found.exists)
        need |= kChange;
    if (creating && found.must_be_directory && (found.error == 0 || found.error == ENOTDIR))
        opened.error = EISDIR;
    else if (found.error != 0)
        opened.error = found.error;
    else if (creating && found.exists && is_exclusive(flags))
        opened.error = EEXIST;
    else if (!creating && !found.exists)
        opened.error = ENOENT;
    else
        opened.error = check(found.path, need, opened.refused);
    if (opened.error != 0)
        return true;
    if (found.is_virtual && !(flags & O_PATH)) {
        opened.error = creating || (need & kWrite) ? EISDIR : EACCES;
        return true;
    }
    // Without the right to create, O_CREAT may still open an existing file.
    int asked = host_flags(flags) | (found.must_be_directory ? O_DIRECTORY : 0);
    if (!(have & kChange))
        asked &= ~kExclusive;
    opened.synthetic = found.is_virtual;
    const int fd = tree_.open(found.is_virtual ? "/" : found.path, asked, host_mode(mode));
    if (fd == -ELOOP && !found.is_link)
        return false;
    opened.error = fd < 0 ? -fd : 0;
    opened.fd = UniqueFd(fd < 0 ? -1 : fd);
    return true;
}

void Policy::open_synthetic(OpenedPath& opened, const Walk& found, int flags, const SelfFacts& self) const {
    using Kind = SyntheticFiles::Kind;
    const bool path_only = (flags & O_PATH) != 0;
    const bool writing = !path_only && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC));
    opened.rights = kLookup | kRead;
    opened.synthetic = found.synthetic != Kind::stdio;
    opened.stdio = found.synthetic == Kind::stdio;
    if (found.synthetic == Kind::hidden)
        opened.refused = "no permission shows it to a guest";
    if (found.error != 0)
        opened.error = found.synthetic == Kind::hidden && (writing || (flags & O_CREAT)) ? EACCES : found.error;
    else if (found.synthetic == Kind::no_device)
        opened.error = path_only ? ENOENT : ENXIO;
    else if (found.synthetic == Kind::link) {
        opened.link = synthetic_.target(found.path);
        opened.error = path_only ? 0 : ELOOP;
    } else if (!path_only && is_exclusive(flags))
        opened.error = EEXIST;
    else if ((flags & O_DIRECTORY) && found.synthetic != Kind::directory)
        opened.error = ENOTDIR;
    else if (found.synthetic == Kind::stdio)
        opened.fd = UniqueFd(::fcntl(synthetic_.stdio_fd(found.path), F_DUPFD_CLOEXEC, 3));
    else if (writing || (found.synthetic == Kind::directory && !path_only))
        opened.error = found.is_directory && writing ? EISDIR : EACCES;
    else if (found.synthetic == Kind::directory)
        opened.fd = UniqueFd(tree_.open("/", O_PATH | O_DIRECTORY, 0));
    else {
        try {
            opened.fd = synthetic_.open(found.path, self);
        } catch (const HostError& e) {
            opened.error = e.code().value(); // most likely too many open files
        }
    }
    if (opened.stdio && !opened.fd && opened.error == 0)
        opened.error = ENXIO; // the VMM was started with this descriptor closed
}

OpenedPlace Policy::place(std::string_view path, bool follow, const SelfFacts& self) const {
    OpenedPlace place;
    const PathText text = cut_path(path);
    place.ends_in_dot = text.ends_in_dot;
    place.ends_in_dotdot = text.ends_in_dotdot;
    if (path.empty() || path.front() != '/')
        place.error = ENOENT;
    else if (path.size() > kMaxPath)
        place.error = ENAMETOOLONG;
    else if (text.ends_in_dot || text.ends_in_dotdot)
        place.error = EINVAL;
    for (int attempt = 0; place.error == 0 && attempt < kWalkAttempts; ++attempt)
        if (place_walked(place, walk(path, follow, self)))
            return place;
    if (place.error == 0)
        place.error = ELOOP;
    return place;
}

bool Policy::place_walked(OpenedPlace& place, const Walk& found) const {
    const Rights have = rights_of(found.path);
    std::string parent;
    std::tie(parent, place.name) = split_last(found.path);
    place.path = found.path;
    place.must_be_directory = found.must_be_directory;
    if (found.error == kOwnPath ||
        (!found.exists && (found.error == 0 || found.error == ENOENT) && is_own_if_missing(found.path))) {
        place.error = kOwnPath;
        return true;
    }
    if (found.synthetic != SyntheticFiles::Kind::none) {
        place.error = EACCES;
        return true;
    }
    place.visible = (have & kLookup) != 0;
    place.exists = place.visible && found.exists;
    place.is_directory = place.exists && found.is_directory;
    if (place.visible && found.error != 0)
        place.error = found.error;
    else if (found.path == "/" || found.is_virtual)
        place.error = EBUSY;
    else
        place.error = check(found.path, kChange, place.refused);
    if (place.error == 0 && tree_.is_mount(found.path))
        place.error = EBUSY;
    if (place.error != 0)
        return true;
    const int fd = tree_.open(parent, O_PATH | O_DIRECTORY, 0);
    if (fd == -ELOOP)
        return false;
    place.error = fd < 0 ? -fd : 0;
    place.folder = UniqueFd(fd < 0 ? -1 : fd);
    return true;
}

} // namespace tinykvm
