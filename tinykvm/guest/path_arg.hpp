// Resolves a path argument: to a path on the host, or to a place in the machine's own folders (own_files.hpp).
#pragma once
#include "tinykvm/guest/own_files.hpp"

namespace gk {

u64 inode_of(const File*); // a made-up inode number for pipes, sockets and the like

inline constexpr u64 kAtCwd = static_cast<u64>(i64{-100});

class PathArg {
public:
    PathArg() = default;
    ~PathArg();
    PathArg(const PathArg&) = delete;
    PathArg& operator=(const PathArg&) = delete;
    // Resolves the arguments of a call; 0 or -errno. With `empty`, "" means the descriptor itself.
    i64 take(u64 dir, u64 path, bool follow, bool empty = false);
    // Continues after the host answered -kOwnPath: the path leads to one of the machine's own folders.
    i64 take_from_host(bool follow);

    bool own() const { return own_; }
    own::Place& place() { return place_; }
    // The machine's own folder has nothing there, but the permissions may show a host file at this path.
    bool may_be_hosts() const { return own_ && !place_.node && whole_; }
    // The arguments for the host.
    u64 handle() const { return static_cast<u64>(static_cast<i64>(handle_)); }
    u64 path() const { return path_; }
    // Makes handle() and path() name the host's file at this path.
    void use_hosts();
    // The pipe, socket or the like that the path leads to through /proc/self/fd, or null.
    File* file() const { return file_; }
    // The host file that the path leads to through /proc/self/fd, or null. path() is the path it was opened by.
    HostFile* hosts_file() const { return hosts_file_; }

private:
    i64 walk_own(own::Node* start, const char* rest, bool follow);
    // proc_paths.cpp
    i64 take_proc(bool follow);
    i64 descriptor(const char* rest, bool follow);
    i64 through(File* f, const char* rest, bool follow);
    i64 give(own::Node* made);

    bool own_ = false;
    bool whole_ = false; // whole_text_ is the absolute path
    i32 handle_ = abi::kHandleCwd;
    u64 path_ = 0;
    own::Place place_;
    own::Node* made_ = nullptr; // a temporary node of proc_paths.cpp
    File* file_ = nullptr;
    HostFile* hosts_file_ = nullptr;
    own::PathBuffer text_, whole_text_;
};

struct NotPermitted {
    i64 operator()(File*) const { return -EPERM; }
};

// Resolves a path and calls one of: host(handle, path) for a path on the host, mine(place) for one in the machine's own
// folders, other(file) for a pipe, socket or the like reached through /proc/self/fd.
template <class Host, class Mine, class Other = NotPermitted>
i64 with_path(u64 dir, u64 path, bool follow, bool empty, Host host, Mine mine, Other other = {}) {
    PathArg arg;
    if (const i64 error = arg.take(dir, path, follow, empty); error < 0)
        return error;
    if (arg.file())
        return other(arg.file());
    if (arg.may_be_hosts()) {
        arg.use_hosts();
        const i64 result = host(arg.handle(), arg.path());
        return result == -abi::kOwnPath ? mine(arg.place()) : result;
    }
    if (arg.own())
        return mine(arg.place());
    const i64 result = host(arg.handle(), arg.path());
    if (result != -abi::kOwnPath)
        return result;
    if (const i64 error = arg.take_from_host(follow); error < 0)
        return error;
    return mine(arg.place());
}

} // namespace gk
