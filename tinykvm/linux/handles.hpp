// Host handles: what the guest's descriptors of files, folders, devices and sockets stand for.
//
// The guest kernel has the descriptor table and the offsets; the host has handles, small numbers given out
// lowest first. A table is a *base*, immutable and shared by the machines cloned from one image, and an
// overlay of what its machine changed since. reset() drops the overlay.
//
// Ownership: a base keeps its files open as long as any table uses it. Threads: a HandleTable belongs to one
// machine; a HandleBase may be shared by threads. As open file descriptions in a base are shared, nothing
// may use their offset, locks or status flags: files are read and written at explicit offsets, and what
// needs state of its own asks private_fd().
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
#include "tinykvm/linux/path_rules.hpp"
#include "tinykvm/linux/unix_name.hpp"

namespace tinykvm {

class Policy;
struct OpenedPath;
struct SelfFacts;

// The numbers are those of the snapshot file.
enum class HandleKind : std::uint8_t {
    stdio = 0,
    file = 1,
    directory = 2,
    device = 3, // devices and FIFOs: streams
    socket = 4,
    memfd = 5,
    event = 6, // readiness only; none are made today
};

struct FileIdentity {
    std::uint64_t dev = 0, ino = 0, size = 0;
    std::int64_t mtime_ns = 0;
    bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity_of(const struct stat& info);

struct HandleInfo {
    HandleKind kind = HandleKind::file;
    std::string path;                                // canonical guest path; of a memfd its name
    std::uint32_t flags = 0;                         // as the guest asked for; O_APPEND is live
    Rights rights = 0;                               // of the path, when it was opened
    bool synthetic = false;                          // a made-up file
    FileIdentity identity;                           // of a base's memfd: the number that its copies keep
    std::int32_t family = 0, type = 0, protocol = 0; // of a socket
    std::vector<std::uint8_t> bound; // sockaddr that a datagram socket was bound to. With a port: what it serves at
    std::vector<std::uint8_t> peer;  // of a datagram socket that is made anew
};

// A datagram that came for a machine.
struct Datagram {
    std::vector<std::byte> bytes;
    sockaddr_storage from{};
    std::uint32_t from_bytes = 0;
};

// What of a memory file is not its content.
struct MemoryFileAttributes {
    std::uint32_t mode = 0, seals = 0;
    std::int64_t atime_ns = 0, mtime_ns = 0;
    bool operator==(const MemoryFileAttributes&) const = default;
};
MemoryFileAttributes attributes_of(int memfd);
// Seals last: they may forbid the rest. False with errno set when one of them cannot be had.
bool set_attributes(int memfd, const MemoryFileAttributes& attributes);

// A handle as plain values, for the snapshot file.
struct HandleState {
    std::int32_t number = 0;
    HandleKind kind = HandleKind::file;
    std::string path;
    std::uint32_t flags = 0;
    FileIdentity identity;
    std::int32_t family = 0, type = 0, protocol = 0;
    std::vector<std::uint8_t> content;             // of a memfd
    std::vector<std::uint8_t> bound, peer;         // of a datagram socket; may be absent in a file
    std::vector<MemoryFileAttributes> memory_file; // one, of a memfd; may be absent in a file
    bool operator==(const HandleState&) const = default;
};

// A descriptor of the host that several tables may hold.
class HostFile {
public:
    explicit HostFile(UniqueFd fd, UnixName name = {}) : fd_(std::move(fd)), name_(std::move(name)) {}
    // One that this process does not close: its own stdio.
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
    std::shared_ptr<const HostFile> file; // null when lost
    HandleInfo info;
    int lost = 0;         // the errno of every use: EIO, ECONNRESET
    bool anew = false;    // a lost datagram socket, which use() makes anew
    std::string lost_why; // one line for explain
};

// What a snapshot held.
class HandleBase {
public:
    const Handle* find(std::int32_t number) const;
    bool has(const std::shared_ptr<const HostFile>& file) const;
    // A handle of the same file as this one, or -1.
    std::int32_t number_of(const Handle& handle) const;
    // The datagram sockets that serve, which all machines with this base have together.
    struct Served {
        std::int32_t number;
        int fd;
    };
    std::vector<Served> served() const;

private:
    friend class HandleTable;
    std::vector<std::unique_ptr<const Handle>> handles_; // by number
};

class HandleTable {
public:
    // A new machine's: 0, 1, 2 are the process's stdio, 3 is policy.facts().cwd. Throws UserError when there
    // is no such folder. Writing to a closed pipe must not kill the process: SIGPIPE and SIGXFSZ are ignored
    // from here on.
    HandleTable(const Policy& policy, std::uint32_t limit);
    // A clone's.
    HandleTable(std::shared_ptr<const HandleBase> base, std::uint32_t limit);
    // Reopens what a snapshot held, by path and through the policy; never creates or truncates. What cannot
    // be reopened, or is another file now, is kept as lost, with a line in `warnings`. Connections are always
    // lost. Throws UserError (bad_snapshot) for states that no table can have given.
    static HandleTable restore(const std::vector<HandleState>& states, const Policy& policy, std::uint32_t limit,
                               std::vector<std::string>& warnings);

    HandleTable(HandleTable&&) = default;
    HandleTable& operator=(HandleTable&&) = default;

    // The lowest free number, or -EMFILE.
    std::int32_t add(UniqueFd fd, HandleInfo info);
    // Another file under the same number (chdir). The number must be in use.
    void replace(std::int32_t number, UniqueFd fd, HandleInfo info);
    // 0 or -EBADF. A handle of the base is only hidden.
    std::int32_t close(std::int32_t number);

    // Null when the number is not in use. Valid until the handle is closed, replaced or reset.
    const Handle* find(std::int32_t number) const;
    // A descriptor of the host, or -1: not in use, or lost. A lost socket gives one that polls as hung up; one that
    // use() would make anew, a socket that nothing comes to.
    int fd(std::int32_t number) const;
    // Why a use of the handle fails: 0, EBADF, or the errno of a lost one.
    int error(std::int32_t number) const;
    // The same, of a use that begins now: a datagram socket of the base becomes this machine's own until reset.
    int use(std::int32_t number);
    // Why mmap of the handle with PROT_* `prot` fails: 0, or EBADF, ENODEV, EACCES, EPERM (a volume without x), or
    // the errno of a lost one. Devices are the caller's business: only /dev/zero makes sense.
    int map_error(std::int32_t number, int prot, bool shared) const;
    // This machine's own content of a memory file: that of the base is copied on first use, and every handle of it
    // leads to the copy until reset. Null with errno set when it cannot be had.
    std::shared_ptr<const HostFile> own_memory_file(const std::shared_ptr<const HostFile>& file);
    // A memory file that is mapped counts as long as its HostFile lives, whether or not it has handles.
    void note_mapped(const std::shared_ptr<const HostFile>& file);
    // A handle of the file, made if there is none, so that a snapshot holds what is mapped. -EMFILE.
    std::int32_t number_of(const Handle& handle);
    // A descriptor whose offset, locks and content are this machine's alone, made on first use and dropped by
    // reset: a folder or file is reopened, a memfd copied. -errno.
    int private_fd(std::int32_t number);
    // fcntl(F_SETFL): only O_APPEND means something here.
    void set_append(std::int32_t number, bool append);

    // A socket that is not of the base: its name in the file system goes with it.
    void set_name(std::int32_t number, UnixName name);

    // Of a datagram socket that was bound and is not the base's.
    void set_bound(std::int32_t number, std::vector<std::uint8_t> address);
    // Whether a socket is the base's, which is other machines' as well: nothing of it may be changed.
    bool is_shared(std::int32_t number) const;
    // A datagram has been answered by a socket of the base, since reset.
    void note_answer() { answered_ = true; }
    // Whether who waits for the handle still has something to do for the datagram that it was given: a file of its own,
    // but not a datagram socket that it had at the start, once it has answered.
    bool is_unfinished(std::int32_t number) const;
    // From now on datagrams of the base's sockets come by give() only: a machine that is reset sees what it was woken
    // for.
    void take_given_only() { given_only_ = true; }
    void give(std::int32_t number, Datagram datagram);
    // For recvmsg: true when the socket is one whose datagrams are given; `out` stays empty when there is none.
    bool receive_given(std::int32_t number, bool peek, std::optional<Datagram>& out);

    // Files of the host that open handles may change: device and inode.
    std::vector<FileIdentity> open_for_writing() const;

    // Bytes that memory files of this table hold, and those that are mapped; sparse parts not counted, and nothing of
    // the base's.
    std::uint64_t memfd_bytes() const;
    // No more than `bytes`, and than `room` has room for when it is asked with what there would be.
    void set_memfd_limit(std::uint64_t bytes, std::function<bool(std::uint64_t)> room = {});
    bool memfds_may_grow(std::uint64_t bytes) const;

    // Shows the base again. Cost: what was opened, closed or replaced since.
    void reset();
    // The contents become the base of this table and its clones. Connections become lost (ECONNRESET):
    // clones cannot share one, and a reset machine cannot go on with it. Datagram sockets at a port that the program
    // has named are all clones' together, others are each clone's own (use()).
    std::shared_ptr<const HandleBase> freeze();
    std::vector<HandleState> states() const;

    std::size_t changed() const { return changed_.size(); } // since the base
    std::uint32_t limit() const { return limit_; }

private:
    explicit HandleTable(std::uint32_t limit) : limit_(limit) {}
    struct Slot {
        const Handle* handle = nullptr; // what is seen: own, of the base, or nothing
        std::unique_ptr<const Handle> own;
        bool changed = false; // noted in changed_
    };
    void put(std::int32_t number, std::unique_ptr<const Handle> handle); // null hides
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
    std::map<const HostFile*, std::shared_ptr<const HostFile>> own_memory_; // by what the base has
    std::vector<std::weak_ptr<const HostFile>> mapped_memory_;
};

// What a path that was opened becomes. Takes the descriptor's kind from fstat; an errno when that fails.
int describe(const OpenedPath& opened, std::uint32_t flags, HandleInfo& info);

// Opens the folder that a program starts in. One of the machine's own has no descriptor: the root folder stands in for
// it.
OpenedPath open_start_folder(const Policy& policy, const std::string& path, int flags);

// An O_PATH descriptor or another process-wide name of an open file: "/proc/self/fd/N", for the host's calls
// that take no descriptor.
std::string host_path_of(int fd);

} // namespace tinykvm
