// Decides what a program may reach. All access to the host's files goes through it.
//
// Rules of the file system, chosen once and followed everywhere:
//  - Deny by default. --allow-read and --allow-write name canonical guest paths: the target of a symlink inside an
//    allowed folder must be allowed itself. Writing implies reading.
//  - A denied place does not exist. Looking there (stat, access, readlink, open for reading, execve-like probes) always
//    gives ENOENT, so that programs that probe many optional files continue as on a machine without them. EACCES would
//    make many of them give up (OpenSSL's configuration, Node's package.json). Changing something there (open for
//    writing, mkdir, unlink, rename ...) always gives EACCES. Neither reveals whether the path exists.
//  - Folders on the way to an allowed place may be looked up but not listed (opening them for reading gives EACCES), so
//    that realpath and mkdir -p work. The same holds for symlinks named in a permission.
//  - In a readable place all answers are true. A change there gives EEXIST or ENOENT where Linux would, and EACCES
//    otherwise.
//  - Following a symlink needs permission for its target only, not for the place of the link.
//  - An absolute symlink inside a volume is followed in the guest's tree, as with a bind mount.
//  - The machine's own folders (/tmp and /dev/shm in memory, guest/own_files.hpp) belong to the guest kernel. A path
//    that leads there gives kOwnPath. The host is not consulted, except for paths that permissions name beneath them.
//  - Relative paths start at the current path of the folder, even after a rename. Every open is checked by that path,
//    and a removed folder is empty.
//  - kvmserver's own files (Permissions::hidden: its store, the API's socket) do not exist, even with --allow-all.
//  - The VMM's /proc/self and other processes do not exist (linux/synthetic.hpp), and nothing under /proc is
//    writable, even with --allow-all.
//  - The operator's ceilings (linux/granted.hpp) are checked with the same canonical path: a link to a place outside
//    them leads nowhere.
//  - Always readable: a few synthetic files of /proc and /sys; /dev/null, zero, full, random, urandom.
//
// Rules of the network: see linux/net_rules.hpp. A refused address gives EACCES.
//
// Thread safety: const after construction, used by all machines at once.
#pragma once
#include <sys/socket.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/linux/file_tree.hpp"
#include "tinykvm/linux/granted.hpp"
#include "tinykvm/linux/net_rules.hpp"
#include "tinykvm/linux/path_rules.hpp"
#include "tinykvm/linux/permissions.hpp"
#include "tinykvm/linux/program_facts.hpp"
#include "tinykvm/linux/synthetic.hpp"

namespace tinykvm {

// Used in place of an errno: the path leads to one of the machine's own folders (abi::kOwnPath).
inline constexpr int kOwnPath = 4000;

struct Handle; // linux/handles.hpp

// The result of Policy::open().
struct OpenedPath {
    UniqueFd fd;
    int error = 0;    // an errno if there is no fd
    std::string path; // canonical guest path, even if nothing is there
    Rights rights = 0;
    bool synthetic = false; // a synthetic file: fd is a sealed memfd, or O_PATH of some folder for a directory
    bool stdio = false;     // /dev/stdin, /dev/stdout or /dev/stderr
    std::string link;       // the target, if a synthetic symlink itself was opened
    std::string refused;    // not empty: a permission is missing; names the flag that would grant it
};

// A name in a folder, for calls that create, remove or rename.
struct OpenedPlace {
    UniqueFd folder; // O_PATH
    std::string name;
    int error = 0;
    std::string path;     // canonical guest path of the name
    bool visible = false; // the program may learn whether it exists
    bool exists = false;  // never set unless visible
    bool is_directory = false;
    bool ends_in_dot = false; // the path as written ended in "." or ".."; then `folder` is not set
    bool ends_in_dotdot = false;
    bool must_be_directory = false;
    std::string refused;
};

// The permissions of one program, resolved against the host. Immutable after set-up; see the rules at the top.
class Policy {
public:
    // Access needs the permissions and every item of `granted` to allow it. Throws UserError if a volume's host folder
    // is missing, HostError without openat2.
    explicit Policy(Permissions permissions, ProgramFacts facts = {}, const std::vector<Granted>& granted = {});

    const Permissions& permissions() const { return permissions_; }
    const ProgramFacts& facts() const { return facts_; }
    // One line for each permission that has no effect (a host name without an address).
    const std::vector<std::string>& warnings() const { return warnings_; }

    // `path` is absolute. Flags are Linux's, including O_PATH | O_NOFOLLOW. The descriptor is O_CLOEXEC and O_NONBLOCK
    // (a FIFO must not block the machine) and never O_APPEND (the descriptor may be shared, so the caller appends with
    // RWF_APPEND).
    OpenedPath open(std::string_view path, int flags, unsigned mode, const SelfFacts& self) const;
    // With `follow`, a symlink as the last component is followed.
    OpenedPlace place(std::string_view path, bool follow, const SelfFacts& self) const;

    Rights rights_of(std::string_view canonical) const;
    // 0 if the path has all rights in `need`. Otherwise the errno of a denied place, with `refused` filled in.
    int check(const std::string& canonical, Rights need, std::string& refused) const;
    // Whether the host has that path. For messages only. A jailed process does not see the host's files, so it can set
    // a function that asks a process outside.
    bool is_on_host(const std::string& path) const;
    void ask_about_host(std::function<bool(const std::string& path)> ask) { ask_about_host_ = std::move(ask); }
    bool is_mount(std::string_view canonical) const { return tree_.is_mount(canonical); }
    // The current path of the folder behind a handle; "" if it was removed.
    std::string folder_path(const Handle& handle) const;
    // The machine's own folders, as bits of abi::Shared::own_folders.
    std::uint32_t own_folders() const { return own_folder_bits_; }

    bool may_connect(const sockaddr* address, socklen_t length) const;
    bool may_connect_abstract(const std::string& name) const;         // "@NAME"
    bool may_listen(const sockaddr* address, socklen_t length) const; // an internet address or an abstract name
    // Checks an absolute path at which a Unix socket is to be bound. Errors as place(), or EACCES with `refused`.
    OpenedPlace socket_place(std::string_view path, const SelfFacts& self) const;
    // Whether a socket may be bound to a local address with port 0, to send from it.
    bool may_bind_ephemeral() const;
    // "--allow-connect=1.2.3.4:80"
    static std::string net_flag(const char* flag, const sockaddr* address, socklen_t length);

private:
    struct Walk;
    struct Cursor;

    Walk walk(std::string_view path, bool follow, const SelfFacts& self) const;
    Walk walk_once(std::string_view path, bool follow, const SelfFacts& self) const;
    // Each consumes one path component. False: the walk ends there.
    bool step(Walk& walk, Cursor& cursor, const SelfFacts& self) const;
    bool step_synthetic(Walk& walk, Cursor& cursor) const;
    bool step_host(Walk& walk, Cursor& cursor) const;

    // One of the operator's ceilings, as rules.
    struct Ceiling {
        Granted granted;
        bool has_paths = false;      // `rules` limits reading and writing
        std::vector<Volume> volumes; // as granted, and with links resolved
        PathRules rules;
        NetGrants connect, listen, deny_connect;
    };
    // Whether a canonical guest path is one of kvmserver's own files.
    bool is_hidden(std::string_view path) const;
    void add_granted(const Granted& granted);
    void add_granted_path(Ceiling& ceiling, const std::string& path, Rights rights);
    static Rights rights_in(const Volume& volume);
    // The part of `rights` that the ceilings grant to a volume with the host folder `host`.
    Rights granted_of_volume(const std::string& host, Rights rights) const;
    void add_rule(const std::string& path, Rights rights);
    // Fast path of add_rule(): the path of a permission, if it is canonical as written. Needs one lookup. Nothing if
    // links or synthetic files may be on the way.
    std::optional<std::string> plain_path(const std::string& path) const;
    void add_lookup(const std::string& path);
    void add_everywhere(const std::string& path, Rights rights); // adds a rule that ceilings do not restrict
    std::vector<std::string> add_volumes();                      // returns the guest paths of mounted volumes
    void choose_own_folders(const std::vector<std::string>& mounted);
    struct OwnFolder {
        std::string path;
        std::uint32_t bit;
        Rights from_above; // rights that rules give to everything beneath it
    };
    const OwnFolder* own_folder_of(std::string_view canonical) const;
    // The path is the machine's own, whatever the host has there.
    bool is_own(std::string_view canonical) const;
    // The path is the machine's own if the host has nothing there.
    bool is_own_if_missing(std::string_view canonical) const;
    bool open_quickly(OpenedPath& opened, std::string_view path, int flags, unsigned mode) const;
    // False if the file system changed during the walk: walk again.
    bool open_walked(OpenedPath& opened, const Walk& walk, int flags, unsigned mode) const;
    void open_synthetic(OpenedPath& opened, const Walk& walk, int flags, const SelfFacts& self) const;
    bool place_walked(OpenedPlace& place, const Walk& walk) const;
    Permissions permissions_;
    ProgramFacts facts_;
    std::vector<std::string> warnings_;
    std::function<bool(const std::string&)> ask_about_host_;
    SyntheticFiles synthetic_;
    FileTree tree_;
    PathRules rules_;
    std::vector<Ceiling> ceilings_;
    std::vector<OwnFolder> own_folders_;
    std::uint32_t own_folder_bits_ = 0;
    std::vector<std::string> hidden_; // real paths of the host
    NetRules connect_, listen_;
    std::vector<std::string> unix_listen_; // canonical paths, and abstract names with '@'
};

} // namespace tinykvm
