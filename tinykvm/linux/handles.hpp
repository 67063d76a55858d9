// Host handles: the host's files, folders, devices and sockets behind the guest's descriptors.
//
// The guest kernel has the descriptor table and the offsets. The host has handles: small numbers, allocated lowest
// first. A table consists of a *base*, which is immutable and shared by the machines cloned from one image, and an
// overlay with its own machine's changes. reset() drops the overlay.
//
// Ownership: a base keeps its files open as long as any table uses it. Threads: a HandleTable belongs to one machine; a
// HandleBase may be shared by threads. Open file descriptions in a base are shared, so nothing may use their offset,
// locks or status flags: files are read and written at explicit offsets, and code that needs state of its own uses
// private_fd().
#pragma once
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/linux/net_address.hpp"
#include "tinykvm/linux/path_rules.hpp"
#include "tinykvm/linux/unix_name.hpp"

namespace tinykvm {

class Policy;
struct OpenedPath;
struct SelfFacts;

// The values are stored in the snapshot file.
enum class HandleKind : std::uint8_t {
    stdio = 0,
    file = 1,
    directory = 2,
    device = 3, // devices and FIFOs: streams
    socket = 4,
    memfd = 5,
    event = 6, // readiness only; currently unused
};

struct FileIdentity {
    std::uint64_t dev = 0, ino = 0, size = 0;
    std::int64_t mtime_ns = 0;
    bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity_of(const struct stat& info);

struct HandleInfo {
    HandleKind kind = HandleKind::file;
    std::string path;                                // canonical guest path; for a memfd its name
    std::uint32_t flags = 0;                         // open flags from the guest; O_APPEND is kept current
    Rights rights = 0;                               // rights of the path when it was opened
    bool synthetic = false;                          // a synthetic file (linux/synthetic.hpp)
    FileIdentity identity;                           // for a memfd of a base, holds the inode number that copies keep
    std::int32_t family = 0, type = 0, protocol = 0; // sockets only
    std::vector<std::uint8_t> bound; // datagram sockets: the bound sockaddr; with a port, it serves there
    std::vector<std::uint8_t> peer;  // datagram sockets that are made anew: the connected sockaddr
};

// A datagram received for a machine.
struct Datagram {
    std::vector<std::byte> bytes;
    sockaddr_storage from{};
    std::uint32_t from_bytes = 0;
};

// The attributes of a memory file that a snapshot keeps beside its content.
struct MemoryFileAttributes {
    std::uint32_t mode = 0, seals = 0;
    std::int64_t atime_ns = 0, mtime_ns = 0;
    bool operator==(const MemoryFileAttributes&) const = default;
};
MemoryFileAttributes attributes_of(int memfd);
// Sets the seals last, because they may forbid the rest. False with errno set on failure.
bool set_attributes(int memfd, const MemoryFileAttributes& attributes);

// A handle as plain values, for the snapshot file.
struct HandleState {
    std::int32_t number = 0;
    HandleKind kind = HandleKind::file;
    std::string path;
    std::uint32_t flags = 0;
    FileIdentity identity;
    std::int32_t family = 0, type = 0, protocol = 0;
    std::vector<std::uint8_t> content;             // memfd only
    std::vector<std::uint8_t> bound, peer;         // datagram sockets only; may be absent in a snapshot file
    std::vector<MemoryFileAttributes> memory_file; // memfd only: one item; may be absent in a snapshot file
    bool operator==(const HandleState&) const = default;
};

// A host descriptor that several tables may share.
class HostFile {
public:
    explicit HostFile(UniqueFd fd, UnixName name = {}) : fd_(std::move(fd)), name_(std::move(name)) {}
    // A descriptor that is never closed: the process's own stdio.
    static std::shared_ptr<const HostFile> borrowed(int fd);
    ~HostFile();
    HostFile(const HostFile&) = delete;
    HostFile& operator=(const HostFile&) = delete;
    int fd() const { return fd_.get(); }

private:
    UniqueFd fd_;
    UnixName name_; // of a bound socket
    bool borrowed_ = false;
};

struct Handle {
    std::shared_ptr<const HostFile> file; // null if lost
    HandleInfo info;
    int lost = 0;         // if lost, the errno of every use: EIO, ECONNRESET
    bool anew = false;    // a lost datagram socket that use() makes anew
    std::string lost_why; // one line for CallContext::explain
};

// The handles of an image. Immutable.
class HandleBase {
public:
    const Handle* find(std::int32_t number) const;
    bool has(const std::shared_ptr<const HostFile>& file) const;
    // A handle of the same file as this one, or -1.
    std::int32_t number_of(const Handle& handle) const;
    // The datagram sockets that serve. All machines with this base share them.
    struct Served {
        std::int32_t number;
        int fd;
    };
    std::vector<Served> served() const;

private:
    friend class HandleTable;
    std::vector<std::unique_ptr<const Handle>> handles_; // by number
};

// The handles of one machine.
class HandleTable {
public:
    // For a new machine: 0, 1, 2 are the process's stdio, 3 is policy.facts().cwd. Throws UserError if that folder does
    // not exist. Side effect: the process ignores SIGPIPE and SIGXFSZ from now on, so that writing to a closed pipe
    // does not kill it.
    HandleTable(const Policy& policy, std::uint32_t limit);
    // For a clone.
    HandleTable(std::shared_ptr<const HandleBase> base, std::uint32_t limit);
    // Reopens the handles of a snapshot by path and through the policy; never creates or truncates. A handle that
    // cannot be reopened, or whose path is another file now, becomes lost, with a line in `warnings`. Connections are
    // always lost. Throws UserError (bad_snapshot) for states that states() cannot have produced.
    static HandleTable restore(const std::vector<HandleState>& states, const Policy& policy, std::uint32_t limit,
                               std::vector<std::string>& warnings);

    HandleTable(HandleTable&&) = default;
    HandleTable& operator=(HandleTable&&) = default;

    // The lowest free number, or -EMFILE.
    std::int32_t add(UniqueFd fd, HandleInfo info);
    // Puts another file under a number that is in use (chdir).
    void replace(std::int32_t number, UniqueFd fd, HandleInfo info);
    // 0 or -EBADF. A handle of the base is only hidden until reset.
    std::int32_t close(std::int32_t number);

    // Null if the number is not in use. Valid until the handle is closed, replaced or reset.
    const Handle* find(std::int32_t number) const;
    // A host descriptor, or -1 if the number is not in use or lost. For a lost socket, a descriptor that polls as hung
    // up; for a datagram socket that use() would make anew, a socket that never receives anything. For a socket that
    // receives only given datagrams, an eventfd that polls like it.
    int fd(std::int32_t number) const;
    // Why using the handle would fail: 0, EBADF, or the errno of a lost handle.
    int error(std::int32_t number) const;
    // As error(), before a use. A datagram socket of the base that can be made anew is made here, and belongs to this
    // machine until reset.
    int use(std::int32_t number);
    // Why mmap of the handle with PROT_* `prot` would fail: 0, EBADF, ENODEV, EACCES, EPERM (a volume without x), or
    // the errno of a lost handle. The caller handles devices: only /dev/zero makes sense.
    int map_error(std::int32_t number, int prot, bool shared) const;
    // This machine's own copy of a memory file. A memory file of the base is copied on first use, and all its handles
    // refer to the copy until reset. Null with errno set on failure. By value: it replaces the handles of `file`.
    std::shared_ptr<const HostFile> own_memory_file(std::shared_ptr<const HostFile> file);
    // A mapped memory file counts in memfd_bytes() as long as its HostFile lives, even without handles.
    void note_mapped(const std::shared_ptr<const HostFile>& file);
    // The number of a handle of this file. Makes one if there is none, so that a snapshot includes mapped files.
    // -EMFILE.
    std::int32_t number_of(const Handle& handle);
    // A descriptor whose offset, locks and content belong to this machine only, or -errno. Made on first use and
    // dropped by reset: a folder or file is reopened, a memfd copied.
    int private_fd(std::int32_t number);
    // fcntl(F_SETFL), of which only O_APPEND matters here.
    void set_append(std::int32_t number, bool append);

    // Attaches the file system name of a socket, which is removed with the socket. Not for sockets of the base.
    void set_name(std::int32_t number, UnixName name);

    // Records the address of a datagram socket that was bound. Not for sockets of the base.
    void set_bound(std::int32_t number, std::vector<std::uint8_t> address);
    // Whether another datagram socket has an address to which this one cannot be bound as well (bound_alike).
    bool has_other_bound(std::int32_t number, const NetAddress& address) const;
    // Whether the handle is a socket of the base, which other machines share: it must not be changed.
    bool is_shared(std::int32_t number) const;
    // Notes that the machine has answered a datagram with a socket of the base since reset.
    void note_answer() { answered_ = true; }
    // Whether a thread that waits for this handle may still be working on the datagram that the machine was given. True
    // for a handle opened since reset; but once the machine has answered, false for a datagram socket that the image
    // had too.
    bool is_unfinished(std::int32_t number) const;
    // From now on, datagrams for the base's sockets arrive only through give(). So a machine that is reset receives
    // exactly the datagram it was woken for.
    void take_given_only() { given_only_ = true; }
    void give(std::int32_t number, Datagram datagram);
    // For recvmsg: true if the socket receives only given datagrams; `out` stays empty if there is none.
    bool receive_given(std::int32_t number, bool peek, std::optional<Datagram>& out);

    // Device and inode of the host files that open handles may write to.
    std::vector<FileIdentity> open_for_writing() const;

    // Bytes in the memory files of this table, including mapped ones. Holes and the base's files are not counted.
    std::uint64_t memfd_bytes() const;
    // Limits memfd_bytes() to `bytes`. If `room` is set, it must also approve each new total.
    void set_memfd_limit(std::uint64_t bytes, std::function<bool(std::uint64_t)> room = {});
    bool memfds_may_grow(std::uint64_t bytes) const;

    // Returns to the base. The cost is proportional to the handles changed since.
    void reset();
    // Makes the current handles the base of this table and its clones. Connections become lost (ECONNRESET), because
    // clones cannot share one and a reset machine cannot continue it. Datagram sockets at a port that the program chose
    // are shared by all clones; each clone makes the others anew (use()).
    std::shared_ptr<const HandleBase> freeze();
    std::vector<HandleState> states() const;

    std::size_t changed() const { return changed_.size(); } // number of handles that differ from the base
    std::uint32_t limit() const { return limit_; }

private:
    explicit HandleTable(std::uint32_t limit) : limit_(limit) {}
    struct Slot {
        const Handle* handle = nullptr; // the visible handle: `own`, that of the base, or null
        std::unique_ptr<const Handle> own;
        bool changed = false; // listed in changed_
    };
    void put(std::int32_t number, std::unique_ptr<const Handle> handle); // null hides the base's handle
    Slot* slot(std::int32_t number);

    std::shared_ptr<const HandleBase> base_;
    std::vector<Slot> slots_;
    std::vector<std::int32_t> changed_;
    std::int32_t lowest_free_ = 0; // no number below is free
    std::uint32_t limit_ = 0;
    std::uint64_t memfd_limit_ = 1ull << 30;
    std::function<bool(std::uint64_t)> memfd_room_;
    bool given_only_ = false, answered_ = false;
    std::int32_t given_number_ = -1;
    std::optional<Datagram> given_;
    std::map<const HostFile*, std::shared_ptr<const HostFile>> own_memory_; // copies, by the base's file
    std::vector<std::weak_ptr<const HostFile>> mapped_memory_;
};

// Fills in the HandleInfo of a path that was opened, its kind from fstat. 0, or an errno if fstat fails.
int describe(const OpenedPath& opened, std::uint32_t flags, HandleInfo& info);

// Opens the folder that a program starts in. For one of the machine's own folders, which has no descriptor, this opens
// "/" in its place.
OpenedPath open_start_folder(const Policy& policy, const std::string& path, int flags);

// "/proc/self/fd/N": a path for an open file (O_PATH too), for host calls that take a path only.
std::string host_path_of(int fd);

} // namespace tinykvm
