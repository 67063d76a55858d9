// The guest's tree of paths over the host's: everything at its own path, volumes at theirs.
//
// Only canonical guest paths come in here, and every open goes through openat2 beneath a folder that was
// opened at the start, following no symlink of any kind. So what is opened is what has that path at that
// moment: a link or a folder swapped in between gives ELOOP, not another file.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/linux/permissions.hpp"

namespace tinykvm {

class FileTree {
public:
    FileTree(); // throws HostError when the kernel has no openat2
    // `guest` is the canonical path of volume.guest. Returns the path on the host of what was opened, all
    // links resolved. Throws UserError when there is no such host folder or file.
    std::string mount(const Volume& volume, const std::string& guest);
    void unmount(const std::string& guest);

    // A descriptor or -errno. -ELOOP: a component is a symlink. O_PATH|O_NOFOLLOW opens a link itself.
    // Nothing of a procfs is opened for writing, and of one that is not at /proc nothing at all.
    int open(const std::string& path, int flags, unsigned mode) const;

    // Opens with O_PATH to see what is there; of any file system. For walking only: what a guest gets comes from open.
    int look(const std::string& path) const;

    // The path that a folder has now, which was opened as `was`: another one after a rename. "" when it is gone or has
    // left the tree.
    std::string path_now(int folder, const std::string& was) const;

    bool is_mount(std::string_view path) const;
    // A folder that must exist for a volume to be reached.
    bool leads_to_mount(std::string_view path) const;
    // The volume that holds the path, or null.
    const Volume* volume_of(std::string_view path) const;

private:
    struct Mount {
        Volume volume;
        std::string guest; // canonical
        UniqueFd folder;
        std::string name; // of the file in the folder when the volume is a file
    };
    const Mount* mount_of(std::string_view path) const;
    int open_unchecked(const std::string& path, int flags, unsigned mode) const;

    UniqueFd root_;
    std::vector<Mount> mounts_; // longest guest path first
};

} // namespace tinykvm
