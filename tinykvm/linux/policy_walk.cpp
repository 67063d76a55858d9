// Makes guest paths canonical, component by component. Symlinks are expanded here, never by the host's kernel. The
// result is only text: FileTree::open verifies it, because it opens the path without following links.
#include "tinykvm/linux/policy_walk.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tinykvm/base/path_text.hpp"

namespace tinykvm {

namespace {

constexpr int kMaxLinks = 40; // MAXSYMLINKS of Linux

// The target of a symlink opened with O_PATH, which readlinkat reads with an empty path. "" on failure.
std::string link_target(int fd) {
    std::string target(kMaxPath + 1, '\0');
    const ssize_t n = ::readlinkat(fd, "", target.data(), target.size());
    target.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return target;
}

} // namespace

struct Policy::Cursor {
    std::vector<std::string> pending; // last first
    bool follow = true;
    bool must_be_directory = false;

    void push(const PathText& text) {
        if (pending.empty())
            must_be_directory |= text.must_be_directory;
        pending.insert(pending.end(), text.parts.rbegin(), text.parts.rend());
    }
    bool at_end() const { return pending.empty() && !must_be_directory; }
    // Continues the walk at the target of a symlink. False after too many links, or if the target is empty.
    bool expand(Walk& walk, const std::string& target) {
        walk.links.push_back(walk.path);
        if (target.empty() || walk.links.size() > kMaxLinks) {
            walk.error = target.empty() ? ENOENT : ELOOP;
            return false;
        }
        const PathText text = cut_path(target);
        walk.path = text.absolute ? "/" : split_last(walk.path).first;
        walk.is_directory = true;
        walk.synthetic = SyntheticFiles::Kind::none;
        push(text);
        return true;
    }
};

Policy::Walk Policy::walk(std::string_view path, bool follow, const SelfFacts& self) const {
    for (int attempt = 0; attempt < kWalkAttempts; ++attempt) {
        Walk result = walk_once(path, follow, self);
        if (!result.raced)
            return result;
    }
    Walk failed;
    failed.path = join_parts(cut_path(path).parts);
    failed.error = ELOOP;
    failed.exists = false;
    return failed;
}

Policy::Walk Policy::walk_once(std::string_view path, bool follow, const SelfFacts& self) const {
    Walk walk;
    Cursor cursor;
    cursor.follow = follow;
    cursor.push(cut_path(path));
    while (!cursor.pending.empty() && step(walk, cursor, self)) {
    }
    if (walk.error != 0)
        walk.exists = false;
    // Add the components after the point where the walk ended, as text: the rights of the whole path decide what the
    // program may learn about it.
    while (!cursor.pending.empty()) {
        const std::string part = cursor.pending.back();
        cursor.pending.pop_back();
        walk.path = part == ".." ? split_last(walk.path).first : join_path(walk.path, part);
    }
    walk.must_be_directory = cursor.must_be_directory;
    return walk;
}

bool Policy::step(Walk& walk, Cursor& cursor, const SelfFacts& self) const {
    const std::string part = cursor.pending.back();
    cursor.pending.pop_back();
    walk.is_virtual = false;
    walk.synthetic = SyntheticFiles::Kind::none;
    if (part == "..") {
        walk.path = split_last(walk.path).first;
        // If the path ends here, look at the folder like at any other: it may exist only as the way to a volume. But
        // not in one of the machine's own folders: the walk came from a host path there, which the guest kernel does
        // not know.
        if (!cursor.pending.empty() || own_folder_of(walk.path))
            return true;
    } else {
        walk.path = synthetic_.canonical(join_path(walk.path, part), self);
    }
    walk.synthetic = synthetic_.kind(walk.path);
    if (const OwnFolder* own = own_folder_of(walk.path)) {
        walk.is_directory = true;
        if (walk.path == own->path && !cursor.pending.empty())
            return true;
        if (is_own(walk.path)) {
            walk.error = kOwnPath;
            return false;
        }
    }
    if (walk.synthetic != SyntheticFiles::Kind::none)
        return step_synthetic(walk, cursor);
    return step_host(walk, cursor);
}

bool Policy::step_synthetic(Walk& walk, Cursor& cursor) const {
    walk.is_directory = false;
    switch (walk.synthetic) {
    case SyntheticFiles::Kind::directory:
        walk.is_directory = true;
        walk.is_virtual = true;
        return true;
    case SyntheticFiles::Kind::link:
        if (cursor.at_end() && !cursor.follow) {
            walk.is_link = true;
            return false;
        }
        return cursor.expand(walk, synthetic_.target(walk.path));
    case SyntheticFiles::Kind::hidden: walk.error = ENOENT; return false;
    default: walk.error = cursor.at_end() ? 0 : ENOTDIR; return false;
    }
}

bool Policy::step_host(Walk& walk, Cursor& cursor) const {
    walk.is_directory = false;
    const UniqueFd fd(tree_.open_for_walk(walk.path));
    if (!fd) {
        const int error = -fd.get();
        if (error == ELOOP) {
            walk.raced = true; // a folder was replaced by a link during the walk
            return false;
        }
        if (error == ENOENT && (tree_.leads_to_mount(walk.path) || synthetic_.leads_to_file(walk.path))) {
            walk.is_directory = true;
            walk.is_virtual = true;
            return true;
        }
        walk.exists = false;
        walk.error = error == ENOENT && cursor.pending.empty() ? 0 : error;
        return false;
    }
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) {
        walk.error = errno;
        return false;
    }
    if (S_ISLNK(info.st_mode)) {
        if (cursor.at_end() && !cursor.follow) {
            walk.is_link = true;
            return false;
        }
        return cursor.expand(walk, link_target(fd.get()));
    }
    walk.is_directory = S_ISDIR(info.st_mode);
    if (!walk.is_directory)
        walk.error = cursor.at_end() ? 0 : ENOTDIR;
    return walk.is_directory;
}

} // namespace tinykvm
