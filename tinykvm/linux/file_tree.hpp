// Maps guest paths to host files: host files appear at their own paths, volumes at their mount points.
//
// All functions take canonical guest paths. Every open uses openat2 beneath a folder that was opened at the start, and
// follows no symlink. So it opens the file that has that path at that moment. If a component was replaced by a symlink
// in the meantime, the result is ELOOP, not another file.
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
    // `guest` is the canonical form of volume.guest. Returns the volume's host path with all links resolved. Throws
    // UserError if the host folder or file does not exist.
    std::string mount(const Volume& volume, const std::string& guest);
    void unmount(const std::string& guest);

    // A descriptor or -errno. -ELOOP: a component is a symlink. O_PATH|O_NOFOLLOW opens a link itself.
    // Files of a procfs at /proc cannot be opened for writing, those of any other procfs not at all.
    int open(const std::string& path, int flags, unsigned mode) const;

    // Opens any file with O_PATH. For walking only: descriptors for guests come from open().
    int open_for_walk(const std::string& path) const;

    // The current path of a folder that was opened as `was`; it differs after a rename. "" if the folder was removed or
    // moved out of the tree.
    std::string path_now(int folder, const std::string& was) const;

    bool is_mount(std::string_view path) const;
    // Whether a volume is mounted beneath the path, so that a folder must exist there.
    bool leads_to_mount(std::string_view path) const;
    // The volume that holds the path, or null.
    const Volume* volume_of(std::string_view path) const;

private:
    struct Mount {
        Volume volume;
        std::string guest; // canonical
        UniqueFd folder;
        std::string name; // file name within `folder`, if the volume is a file
    };
    const Mount* mount_of(std::string_view path) const;
    int open_unchecked(const std::string& path, int flags, unsigned mode) const;

    UniqueFd root_;
    std::vector<Mount> mounts_; // longest guest path first
};

} // namespace tinykvm
