// What a program may reach, and the only way to the host's files.
//
// Rules of the file system, chosen once and followed everywhere:
//  - Deny by default. --allow-read and --allow-write name canonical guest paths: a symlink inside an allowed
//    folder leads only to what is allowed itself. Writing implies reading.
//  - A denied place does not exist: looking there (stat, access, readlink, open for reading, execve-like
//    probes) gives ENOENT, always, so that programs that probe many optional files go on as they do on a
//    machine without them. EACCES would make many of them give up (OpenSSL's configuration, Node's
//    package.json). Changing something there (open for writing, mkdir, unlink, rename ...) gives EACCES,
//    always. Neither tells whether the path exists.
//  - Folders on the way to an allowed place may be looked up but not listed (opening them for reading:
//  EACCES),
//    so that realpath and mkdir -p work. So may symlinks named in a permission.
//  - In a readable place the true answers are given; a change there gives EEXIST or ENOENT where Linux would,
//    and otherwise EACCES.
//  - Following a symlink needs no permission where the link is, only where it leads.
//  - An absolute symlink inside a volume is followed in the guest's tree, as with a bind mount.
//  - The machine's own folders (/tmp and /dev/shm in memory, guest/own_files.hpp) are the guest kernel's: a
//  path that leads there
//    gives kOwnPath, and nothing of the host's is looked at, but for what permissions name beneath them.
//  - Relative paths are taken from the path that the folder has now, wherever it was renamed to: every open
//  is checked
//    anew by that path, and a folder that is gone holds nothing.
//  - What is kvmserver's own (Permissions::hidden: its store, the API's socket) does not exist, even with --allow-all.
//  - The VMM's /proc/self and other processes do not exist (linux/synthetic.hpp), and nothing under /proc is
//    writable, even with --allow-all.
//  - What an operator grants (linux/granted.hpp) is asked for the same canonical path: a link that leads out
//  of it leads nowhere.
//  - The always readable: a few made-up files of /proc and /sys; /dev/null, zero, full, random, urandom.
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

// In place of an errno: the path leads to a folder of the machine's own (abi::kOwnPath).
inline constexpr int kOwnPath = 4000;

struct Handle; // linux/handles.hpp

// What came of opening a path.
struct OpenedPath {
    UniqueFd fd;
    int error = 0;    // an errno when there is no fd
    std::string path; // canonical guest path, of what is not there too
    Rights rights = 0;
    bool synthetic = false; // a made-up file: fd is a sealed memfd, or O_PATH of some folder for a directory
    bool stdio = false;     // /dev/stdin and its like
    std::string link;       // the target of a made-up symlink, when that itself was asked for
    std::string refused;    // not empty: a permission is missing, and the flag that would give it
};

// A name in a folder, for what creates, removes or renames.
struct OpenedPlace {
    UniqueFd folder; // O_PATH
    std::string name;
    int error = 0;
    std::string path;     // canonical guest path of the name
    bool visible = false; // whether it exists may be told
    bool exists = false;  // never set unless visible
    bool is_directory = false;
    bool ends_in_dot = false; // the path as written ended in "." or ".."; there is no folder then
    bool ends_in_dotdot = false;
    bool must_be_directory = false;
    std::string refused;
};

class Policy {
public:
    // All of `granted` must allow what the permissions allow. Throws UserError when a volume's host folder is
    // missing, HostError without openat2.
    explicit Policy(Permissions permissions, ProgramFacts facts = {}, const std::vector<Granted>& granted = {});

    const Permissions& permissions() const { return permissions_; }
    const ProgramFacts& facts() const { return facts_; }
    // One line each of permissions that cannot mean anything (a host name without an address).
    const std::vector<std::string>& warnings() const { return warnings_; }

    // `path` is absolute. Flags are Linux's, O_PATH | O_NOFOLLOW included; the descriptor is O_CLOEXEC and
    // O_NONBLOCK (a FIFO must not block the machine) and never O_APPEND (the caller appends by RWF_APPEND, as
    // the descriptor may be shared).
    OpenedPath open(std::string_view path, int flags, unsigned mode, const SelfFacts& self) const;
    // With `follow`, a symlink as the last component is followed.
    OpenedPlace place(std::string_view path, bool follow, const SelfFacts& self) const;

    Rights rights_of(std::string_view canonical) const;
    // 0, or the errno for lacking some of `need` with `refused` filled in: the rule of denied places.
    int check(const std::string& canonical, Rights need, std::string& refused) const;
    // Whether the host has that path, for messages only. In a jail that does not show it, who is outside is asked.
    bool is_on_host(const std::string& path) const;
    void ask_about_host(std::function<bool(const std::string& path)> ask) { ask_about_host_ = std::move(ask); }
    bool is_mount(std::string_view canonical) const { return tree_.is_mount(canonical); }
    // The path that the folder behind a handle has now; "" when it is gone.
    std::string folder_path(const Handle& handle) const;
    // Which folders are the machine's own: bits of abi::Shared::own_folders.
    std::uint32_t own_folders() const;

    bool may_connect(const sockaddr* address, socklen_t length) const;
    bool may_connect_abstract(const std::string& name) const;         // "@NAME"
    bool may_listen(const sockaddr* address, socklen_t length) const; // an internet address or an abstract name
    // Where a Unix socket may be bound: `path` is absolute; an error as place() or EACCES with `refused`.
    OpenedPlace socket_place(std::string_view path, const SelfFacts& self) const;
    // A local address with port 0, for a socket that will only send.
    bool may_bind_ephemeral() const;
    // "--allow-connect=1.2.3.4:80"
    static std::string net_flag(const char* flag, const sockaddr* address, socklen_t length);

private:
    struct Walk;
    struct Cursor;

    Walk walk(std::string_view path, bool follow, const SelfFacts& self) const;
    Walk walk_once(std::string_view path, bool follow, const SelfFacts& self) const;
    // Each takes one component; false when the walk ends there.
    bool step(Walk& walk, Cursor& cursor, const SelfFacts& self) const;
    bool step_synthetic(Walk& walk, Cursor& cursor) const;
    bool step_host(Walk& walk, Cursor& cursor) const;

    // What an operator grants, as rules.
    struct Most {
        Granted granted;
        bool has_paths = false;      // `rules` says what may be read and written
        std::vector<Volume> volumes; // as granted, and where their links lead
        PathRules rules;
        NetGrants connect, listen, deny_connect;
    };
    // Of kvmserver's own, by a canonical guest path.
    bool is_hidden(std::string_view path) const;
    void add_granted(const Granted& granted);
    void add_granted_path(Most& most, const std::string& path, Rights rights);
    static Rights rights_in(const Volume& volume);
    // What is granted of a volume whose folder on the host is `host`.
    Rights granted_of_volume(const std::string& host, Rights rights) const;
    void add_rule(const std::string& path, Rights rights);
    // The path that a permission names, where it is canonical as written: one look. Nothing where links or made-up
    // files may be on the way.
    std::optional<std::string> plain_path(const std::string& path) const;
    void add_lookup(const std::string& path);
    void add_everywhere(const std::string& path, Rights rights); // where no operator is asked
    std::vector<std::string> add_volumes();                      // guest paths of those that are mounted
    void choose_own_folders(const std::vector<std::string>& mounted);
    struct OwnFolder {
        std::string path;
        std::uint32_t bit;
        Rights from_above; // what rules give everything beneath it
    };
    const OwnFolder* own_folder_of(std::string_view canonical) const;
    // It is the machine's own whatever the host has there.
    bool is_own(std::string_view canonical) const;
    // It is the machine's own when the host has nothing there.
    bool is_own_if_missing(std::string_view canonical) const;
    bool open_quickly(OpenedPath& opened, std::string_view path, int flags, unsigned mode) const;
    // False when something changed under way.
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
    std::vector<Most> most_;
    std::vector<OwnFolder> own_folders_;
    std::vector<std::string> hidden_; // real paths of the host
    NetRules connect_, listen_;
    std::vector<std::string> unix_listen_; // canonical paths, and abstract names with '@'
};

} // namespace tinykvm
