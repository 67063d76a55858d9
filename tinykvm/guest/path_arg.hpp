// What a path argument means: something of the host's, or of the machine's own folders (own_files.hpp).
#pragma once
#include "tinykvm/guest/own_files.hpp"

namespace gk {

u64 inode_of(const File*); // of what is neither the host's nor the machine's own

inline constexpr u64 kAtCwd = static_cast<u64>(i64{-100});

class PathArg {
public:
    PathArg() = default;
    ~PathArg();
    PathArg(const PathArg&) = delete;
    PathArg& operator=(const PathArg&) = delete;
    // 0 or -errno. With `empty`, "" means the descriptor itself.
    i64 take(u64 dir, u64 path, bool follow, bool empty = false);
    // The host found that the path it was given leads to one of the machine's own folders.
    i64 take_from_host(bool follow);

    bool own() const { return own_; }
    own::Place& place() { return place_; }
    // Nothing is there, and permissions may show something of the host's at this path.
    bool may_be_hosts() const { return own_ && !place_.node && whole_; }
    // For the host.
    u64 handle() const { return static_cast<u64>(static_cast<i64>(handle_)); }
    u64 path() const { return path_; }
    void use_hosts();
    // A pipe, socket or the like that the path leads to by /proc/self/fd; null otherwise.
    File* file() const { return file_; }
    // The same of a host's file: the path is what it was opened by.
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
    own::Node* made_ = nullptr; // for this lookup
    File* file_ = nullptr;
    HostFile* hosts_file_ = nullptr;
    own::PathBuffer text_, whole_text_;
};

struct NotPermitted {
    i64 operator()(File*) const { return -EPERM; }
};

// The host's answer or the machine's own: host(handle, path), mine(place), and other(file) of what /proc/self/fd leads
// to.
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
