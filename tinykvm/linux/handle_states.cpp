// Converts handles to plain values and back, for snapshot files.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/datagram_socket.hpp"
#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/policy.hpp"

namespace tinykvm {

namespace {

constexpr std::int32_t kHighestNumber = 1 << 20;

[[noreturn]] void bad_state(const HandleState& state, const std::string& why) {
    throw UserError(ExitCode::bad_snapshot, fmt::format("snapshot: handle {}: {}", state.number, why));
}

bool is_unnamed(HandleKind kind, std::uint32_t flags) {
    return kind == HandleKind::file && (flags & O_TMPFILE) == O_TMPFILE;
}

int stdio_number(const std::string& path) {
    return path == "/dev/stdin" ? 0 : path == "/dev/stdout" ? 1 : path == "/dev/stderr" ? 2 : -1;
}

void check(const HandleState& state) {
    if (state.number < 0 || state.number > kHighestNumber)
        bad_state(state, "impossible number");
    const bool by_path =
        state.kind == HandleKind::file || state.kind == HandleKind::directory || state.kind == HandleKind::device;
    if (by_path &&
        (!state.path.starts_with('/') || state.path.size() > kMaxPath || state.path.find('\0') != std::string::npos))
        bad_state(state, "impossible path");
    if (state.kind == HandleKind::stdio && stdio_number(state.path) < 0)
        bad_state(state, "unknown standard stream");
    if (state.kind > HandleKind::event)
        bad_state(state, "unknown kind");
    if (state.kind != HandleKind::memfd && !state.content.empty())
        bad_state(state, "content where none belongs");
    if (state.kind == HandleKind::memfd && state.content.size() > state.identity.size)
        bad_state(state, "more content than its size");
    if (state.memory_file.size() > (state.kind == HandleKind::memfd ? 1 : 0))
        bad_state(state, "attributes of more memory files than it is");
    constexpr std::uint32_t kModes = 07777, kSeals = 0x3f; // F_SEAL_SEAL to F_SEAL_EXEC
    for (const MemoryFileAttributes& file : state.memory_file)
        if ((file.mode & ~kModes) != 0 || (file.seals & ~kSeals) != 0)
            bad_state(state, "attributes that no memory file has");
}

// The content without trailing zeros. Nothing if it reaches beyond `limit` bytes, holes included.
std::optional<std::vector<std::uint8_t>> read_memfd(int fd, std::uint64_t size, std::uint64_t limit) {
    std::vector<std::uint8_t> content;
    off_t end = 0; // end of the data; only a hole follows
    for (off_t at = 0; (at = ::lseek(fd, at, SEEK_DATA)) >= 0; at = end)
        if ((end = ::lseek(fd, at, SEEK_HOLE)) < 0)
            throw_errno("look for holes in a memfd of the guest");
    const std::uint64_t bytes = std::min(static_cast<std::uint64_t>(end), size);
    if (bytes > limit)
        return std::nullopt;
    content.resize(bytes);
    std::size_t done = 0;
    while (done < content.size()) {
        const ssize_t n = ::pread(fd, content.data() + done, content.size() - done, static_cast<off_t>(done));
        if (n <= 0)
            throw_errno("read memfd of the guest");
        done += static_cast<std::size_t>(n);
    }
    while (!content.empty() && content.back() == 0)
        content.pop_back();
    return content;
}

void restore_memfd(const HandleState& state, Handle& handle) {
    UniqueFd fd(::memfd_create(state.path.substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(state.identity.size)) != 0)
        throw_errno(fmt::format("restore memfd {}", state.path));
    std::size_t done = 0;
    while (done < state.content.size()) {
        const ssize_t n =
            ::pwrite(fd.get(), state.content.data() + done, state.content.size() - done, static_cast<off_t>(done));
        if (n <= 0)
            throw_errno(fmt::format("restore memfd {}", state.path));
        done += static_cast<std::size_t>(n);
    }
    if (!state.memory_file.empty() && !set_attributes(fd.get(), state.memory_file[0]))
        throw_errno(fmt::format("restore attributes of memfd {}", state.path));
    handle.file = std::make_shared<const HostFile>(std::move(fd));
}

// Restores a datagram socket that serves at a port.
bool restore_bound(const HandleState& state, const Policy& policy, Handle& handle) {
    const auto* address = reinterpret_cast<const sockaddr*>(state.bound.data());
    const auto bytes = static_cast<socklen_t>(state.bound.size());
    if (!is_internet_datagram(state.family, state.type, state.protocol) || !net_address(address, bytes))
        bad_state(state, "no datagram socket");
    if (!policy.may_listen(address, bytes)) {
        handle.lost_why = "not permitted; " + Policy::net_flag("--allow-listen", address, bytes) + " would allow it";
        handle.lost = ECONNRESET;
        return true;
    }
    handle.info.bound = state.bound;
    if (policy.permissions().shared_network)
        share_port(handle.info);
    UniqueFd fd = make_datagram_socket(handle.info);
    if (!fd) {
        handle.lost_why =
            fmt::format("cannot be bound to {} here ({})", net_address(address, bytes)->text(), std::strerror(errno));
        handle.lost = ECONNRESET;
        return true;
    }
    handle.file = std::make_shared<const HostFile>(std::move(fd));
    return true;
}

// Restores a datagram socket that each machine makes anew, unless the permissions no longer allow its use. False if it
// cannot be made anew.
bool restore_anew(const HandleState& state, const Policy& policy, Handle& handle) {
    handle.info.bound = state.bound;
    handle.info.peer = state.peer;
    if (!can_be_made_anew(handle.info))
        return false;
    const auto address = [](const std::vector<std::uint8_t>& bytes) {
        return reinterpret_cast<const sockaddr*>(bytes.data());
    };
    const auto size = [](const std::vector<std::uint8_t>& bytes) { return static_cast<socklen_t>(bytes.size()); };
    if ((!state.bound.empty() && !net_address(address(state.bound), size(state.bound))) ||
        (!state.peer.empty() && !net_address(address(state.peer), size(state.peer))))
        bad_state(state, "no internet address");
    handle.lost = ECONNRESET;
    if (!state.peer.empty() && !policy.may_connect(address(state.peer), size(state.peer)))
        handle.lost_why = "not permitted; " +
                          Policy::net_flag("--allow-connect", address(state.peer), size(state.peer)) +
                          " would allow it";
    else if (!state.bound.empty() && !policy.may_bind_ephemeral())
        handle.lost_why = "not permitted; --allow-connect would allow it";
    else
        handle.anew = true;
    return true;
}

// A file that is open for reading only must be unchanged. One that is open for writing may have changed.
bool is_unchanged(const HandleState& then, const HandleInfo& now) {
    if (then.kind != now.kind)
        return false;
    const bool read_only = (then.flags & O_ACCMODE) == O_RDONLY && !(then.flags & O_PATH);
    if (now.kind != HandleKind::file || now.synthetic || !read_only)
        return true;
    // Do not compare device and inode: they differ for the same file on another host.
    return then.identity.size == now.identity.size && then.identity.mtime_ns == now.identity.mtime_ns;
}

// Saves a file without a name (O_TMPFILE, or deleted) as a memfd with its content. If it cannot be read or is too
// large, the state is unchanged, and the handle will be lost.
void save_unnamed(HandleState& state, int fd, std::uint64_t limit) {
    const UniqueFd again(::open(host_path_of(fd).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (!again || ::fstat(again.get(), &info) != 0)
        return;
    auto content = read_memfd(again.get(), static_cast<std::uint64_t>(info.st_size), limit);
    if (!content)
        return;
    state.content = *std::move(content);
    state.kind = HandleKind::memfd;
    state.memory_file = {attributes_of(again.get())};
    state.flags &= ~static_cast<std::uint32_t>(O_TMPFILE);
    state.identity = {0, 0, static_cast<std::uint64_t>(info.st_size), 0};
}

void restore_path(const HandleState& state, const Policy& policy, Handle& handle) {
    if (is_unnamed(state.kind, state.flags)) {
        handle.lost_why = "was a file without a name";
        handle.lost = EIO;
        return;
    }
    const int flags = static_cast<int>(state.flags) & ~(O_CREAT | O_EXCL | O_TRUNC);
    OpenedPath opened = state.number == abi::kHandleCwd ? open_start_folder(policy, state.path, flags)
                                                        : policy.open(state.path, flags, 0, {});
    HandleInfo now;
    if (opened.error == 0)
        opened.error = opened.fd ? describe(opened, state.flags, now) : ENOENT;
    if (opened.error != 0)
        handle.lost_why = opened.refused.empty()
                              ? fmt::format("cannot be opened here ({})", std::strerror(opened.error))
                              : fmt::format("not permitted; {}", opened.refused);
    else if (!is_unchanged(state, now))
        handle.lost_why = "is not the file that it was at the snapshot";
    else {
        handle.info = std::move(now);
        handle.file = std::make_shared<const HostFile>(std::move(opened.fd));
        return;
    }
    handle.lost = EIO;
}

} // namespace

std::vector<HandleState> HandleTable::states() const {
    std::vector<HandleState> states;
    for (std::size_t n = 0; n < slots_.size(); ++n) {
        const Handle* handle = slots_[n].handle;
        if (!handle)
            continue;
        const HandleInfo& info = handle->info;
        HandleState state;
        state.number = static_cast<std::int32_t>(n);
        state.kind = info.kind;
        state.path = info.path;
        state.flags = info.flags;
        state.identity = info.identity;
        state.family = info.family;
        state.type = info.type;
        state.protocol = info.protocol;
        state.bound = info.bound;
        state.peer = info.peer;
        struct stat now {};
        const bool changes = info.kind == HandleKind::file || info.kind == HandleKind::memfd;
        bool deleted = false;
        if (changes && handle->file && ::fstat(handle->file->fd(), &now) == 0) {
            state.identity = identity_of(now);
            deleted = info.kind == HandleKind::file && !info.synthetic && !(info.flags & O_PATH) && now.st_nlink == 0;
        }
        if (info.kind == HandleKind::memfd)
            state.identity = {0, 0, state.identity.size, 0}; // every restore makes a new memfd
        if (info.synthetic)
            state.identity = {};
        if (info.kind == HandleKind::memfd && handle->file) {
            auto content = read_memfd(handle->file->fd(), state.identity.size, memfd_limit_);
            if (!content)
                throw UserError(
                    ExitCode::failure,
                    fmt::format("snapshot: a memory file of the program (\"{}\") reaches over {} MiB, more than a "
                                "snapshot holds; let it cut the file before it waits for connections",
                                info.path, memfd_limit_ >> 20));
            state.content = *std::move(content);
            state.memory_file = {attributes_of(handle->file->fd())};
        }
        if ((is_unnamed(info.kind, info.flags) || deleted) && handle->file)
            save_unnamed(state, handle->file->fd(), memfd_limit_);
        states.push_back(std::move(state));
    }
    return states;
}

HandleTable HandleTable::restore(const std::vector<HandleState>& states, const Policy& policy, std::uint32_t limit,
                                 std::vector<std::string>& warnings) {
    std::int32_t highest = 0;
    for (const HandleState& state : states) {
        check(state);
        highest = std::max(highest, state.number);
    }
    HandleTable table(std::max(limit, static_cast<std::uint32_t>(highest) + 1));
    table.slots_.resize(table.limit_);
    for (const HandleState& state : states) {
        if (table.find(state.number))
            bad_state(state, "there are two of it");
        Handle handle;
        handle.info.kind = state.kind;
        handle.info.path = state.path;
        handle.info.flags = state.flags;
        handle.info.identity = state.identity;
        handle.info.family = state.family;
        handle.info.type = state.type;
        handle.info.protocol = state.protocol;
        switch (state.kind) {
        case HandleKind::stdio: handle.file = HostFile::borrowed(stdio_number(state.path)); break;
        case HandleKind::memfd: restore_memfd(state, handle); break;
        case HandleKind::socket:
            if (names_port(state.bound) ? restore_bound(state, policy, handle) : restore_anew(state, policy, handle))
                break;
            [[fallthrough]];
        case HandleKind::event:
            handle.lost = state.kind == HandleKind::socket ? ECONNRESET : EIO;
            handle.lost_why = "was open at the snapshot, and connections do not outlive one";
            break;
        default: restore_path(state, policy, handle);
        }
        if (handle.lost != 0 && !handle.anew)
            warnings.push_back(fmt::format("handle {} {} \"{}\": {}", state.number,
                                           state.kind == HandleKind::socket ? "socket" : "file", state.path,
                                           handle.lost_why));
        table.put(state.number, std::make_unique<const Handle>(std::move(handle)));
    }
    table.freeze();
    return table;
}

} // namespace tinykvm
