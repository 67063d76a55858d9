// The machine's own file system in memory: /tmp and /dev/shm.
//
// All of it is guest memory, so reset, snapshot, clones and memory limits cover it like the program's memory. Names,
// sizes and owners live in the guest kernel's heap. Contents live in the file area (layout::kFileArea): each file has
// one contiguous extent of a power-of-two size, whose pages stay untouched until they are written.
//
//   own_space.cpp    extents, contents of one file
//   own_tree.cpp     nodes, names, walking paths
//   own_access.cpp   permissions
//   own_file.cpp     open files: reading, writing, positions, listing
//   own_calls.cpp    calls that take a path or a descriptor
//   own_names.cpp    mkdir, mknod, link, symlink, unlink, rename
//   own_locks.cpp    flock and record locks
//   own_fifo.cpp     named pipes
//   own_watch.cpp    inotify
//   own_attributes.cpp  extended attributes
#pragma once
#include "tinykvm/guest/calls.hpp"

namespace gk {
struct Pipe;
}

namespace gk::own {

enum Mode : u32 {
    kFormat = 0170000,
    kFifo = 0010000,
    kDirectory = 0040000,
    kRegular = 0100000,
    kLink = 0120000,
    kSocket = 0140000
};
inline constexpr u64 kPage = 4096;
inline constexpr u64 kMaxName = 255, kMaxPath = 4096; // kMaxPath includes the NUL, kMaxName does not

struct Node;
inline constexpr u32 kProcVolume = 2; // nameless nodes of proc_paths.cpp
struct Entry {                        // a name in a folder
    Entry *bucket_next, *previous, *next;
    Entry *newer, *older; // other names of the node
    Node *folder, *node;
    u64 cookie; // d_off in a listing
    u32 hash, length;
    char name[1]; // `length` bytes
};
struct Lock;
struct Attribute;
struct Watch;

struct Node {
    struct {
        u64 data = 0, size = 0;
    } content; // the extent, 0 while there is none, and the file's size
    // After the first shared mapping, a memfd on the host holds the content in place of the extent.
    i32 handle = abi::kNoHandle;
    u64 room = 0;        // size of the extent in bytes
    u64* held = nullptr; // bitmap: pages of the extent that were written to
    u64 pages = 0;       // number of bits set in `held`
    u32 mode = 0, uid = 0, gid = 0;
    u32 links = 0, refs = 0; // names, and all other references
    u64 ino = 0;
    u64 accessed = 0, modified = 0, changed = 0, born = 0; // ns since 1970
    u8 volume = 0;                                         // index of the root that it belongs to
    Node* parent = nullptr;                                // folders only; null once removed
    Entry* name = nullptr;                                 // its newest name, of those that are left
    Entry *first = nullptr, *last = nullptr;               // entries of a folder
    u64 next_cookie = 3;
    u32 entries = 0, folders = 0;
    char* target = nullptr; // symlinks only
    Pipe* fifo = nullptr;
    Lock* locks = nullptr;
    Attribute* attributes = nullptr;
    Watch* watches = nullptr;
    i64 size() const { return static_cast<i64>(content.size); }
    u32 format() const { return mode & kFormat; }
    bool is_folder() const { return format() == kDirectory; }
};

struct OwnFile : File {
    Node* node = nullptr;
    u64 offset = 0;
};
inline OwnFile* own_file(File* f) { return f && f->kind == Kind::own ? static_cast<OwnFile*>(f) : nullptr; }

// --- own_space.cpp -------------------------------------------------------------------------------
struct Usage {
    u64 pages, max_pages, nodes, max_nodes;
};
Usage usage();
bool count_node(); // counts a new node; false: the limit is reached
void uncount_node();
bool holds(const Node*, u64 page); // whether the page was written to
i64 make_room(Node*, u64 bytes);   // makes the extent at least that large; 0, -ENOSPC or -EFBIG
i64 hold(Node*, u64 from, u64 to); // marks the pages of [from, to) in the extent as written to; 0 or -ENOSPC
i64 set_size(Node*, u64 bytes);
i64 move_to_host(Node*);             // moves the content from the extent to Node::handle
void punch(Node*, u64 from, u64 to); // zeroes the range and frees its whole pages
void drop_content(Node*);
void content_changed(Node*); // updates mtime and ctime, clears the set-ID bits
i64 read_at(Node*, Cursor&, u64 offset);
i64 write_at(Node*, Cursor&, u64 offset);

// --- own_tree.cpp --------------------------------------------------------------------------------
// The program's file system ids. During boot there is no thread yet.
inline u32 own_uid() { return current ? current->ids.user.file : gk_shared_page.uid; }
inline u32 own_gid() { return current ? current->ids.group.file : gk_shared_page.gid; }
bool enabled();                         // whether any folder is the machine's own
Node* new_node(u32 mode, Node* folder); // sets owner, group and times as Linux does; null: ENOSPC
void keep(Node*);                       // takes a reference
void drop(Node*);                       // drops a reference, and frees the node if it has no name and no reference
Entry* find_entry(const Node* folder, const char* name, u64 length);
i64 add_entry(Node* folder, const char* name, u64 length, Node*);
void remove_entry(Entry*);
// These two need no memory, and so cannot fail.
void exchange_entries(Entry*, Entry*); // their nodes change places
void replace_entry(Entry*, Node*);     // the entry becomes a name of the node, and not of its own any more
// These return the length of the path with its NUL.
i64 path_of(const Node* folder, char* to, u64 room); // -ENOENT if the folder was removed
i64 path_of_name(const Node* folder, const char* name, u64 length, char* to, u64 room);
i64 path_of_node(const Node*, char* to, u64 room); // ends in " (deleted)" if the node has no name

// The result of walking a path. `name` is empty if the path ends in a root, "." or "..".
struct Place {
    Node *folder = nullptr, *node = nullptr; // folder: null if a folder on the way does not exist
    char name[kMaxName + 1];
    u32 length = 0;
    bool must_be_folder = false;
    bool ends_in_dot = false, ends_in_dotdot = false;
    i64 error = 0; // any error but a missing last component
};
// A NUL-terminated path in guest kernel memory, kMaxPath bytes. Walks put link targets into it.
class PathBuffer {
public:
    PathBuffer() = default;
    ~PathBuffer() { release(text_, kMaxPath); }
    PathBuffer(const PathBuffer&) = delete;
    PathBuffer& operator=(const PathBuffer&) = delete;
    bool make() { return text_ || (text_ = static_cast<char*>(allocate_dirty(kMaxPath))); } // false: no memory
    char* text() { return text_; }

private:
    char* text_ = nullptr;
};
// The root of the machine's own folder that an absolute path begins with, or null. `rest` is the path beneath it.
Node* root_of(const char* path, const char*& rest);
// Walks `path`. False: it leads out of the machine's own folders, and `path` holds the absolute path to continue with.
bool walk(Place&, Node* start, PathBuffer& path, bool follow);
Node* current_folder(); // null: the current folder is on the host
void set_current_folder(Node*);

// --- own_access.cpp ------------------------------------------------------------------------------
bool permitted(const Node*, u32 want);            // 4 read, 2 write, 1 execute or search
bool owns(const Node*);                           // whether the program may do what a file's owner may
bool may_remove(const Node* folder, const Node*); // the rule of the sticky bit
// The mode that the program may give a file of this group: without the set-group-ID bit if it is not a member.
u32 mode_for_group(u32 mode, u32 gid);
void drop_set_ids(Node*); // clears the set-ID bits, as a change of owner does
void drop_set_ids_on_write(Node*);

// --- own_watch.cpp: inotify ----------------------------------------------------------------------
enum Note : u32 {
    kNoteAccess = 1,
    kNoteModify = 2,
    kNoteAttributes = 4,
    kNoteCloseWrite = 8,
    kNoteClose = 0x10,
    kNoteOpen = 0x20,
    kNoteMovedFrom = 0x40,
    kNoteMovedTo = 0x80,
    kNoteCreate = 0x100,
    kNoteDelete = 0x200,
    kNoteDeleteSelf = 0x400,
    kNoteMoveSelf = 0x800,
    kNoteIgnored = 0x8000,
    kNoteFolder = 0x40000000
};
// Reports an event to the watches of the node and of the folder that holds its name.
void note(Node*, u32 what);
void note_links(Node*); // reports a changed number of names to the watches of the node alone
// Reports a name that was added or removed to the watches of its folder.
void note_name(Node* folder, const char* name, u32 length, const Node*, u32 what, u32 cookie = 0);
u64 watch_bytes_ready(const File*); // FIONREAD of an inotify descriptor

// --- own_file.cpp --------------------------------------------------------------------------------
i64 open_node(Node*, u32 flags); // returns a new descriptor
i64 open_place(Place&, u32 flags, u32 mode);
i64 seek(OwnFile*, i64 offset, u32 whence);
i64 list(OwnFile*, u64 to, u64 bytes); // getdents64
void fill_stat(const Node*, void* stat144);

// --- own_calls.cpp -------------------------------------------------------------------------------
i64 seek_data(const OwnFile*, i64 offset, bool hole);
// A call on an open file: fstat, ftruncate, fchmod ... `nr` is Linux's system call number.
i64 handle_call(OwnFile* f, u32 nr, const Args&);
// A call on the file that a path leads to. `nr` and `a` are those of the *at form.
i64 path_call(Place&, u32 nr, const u64* a);
i64 map(OwnFile*, const Args&);                  // mmap
i64 attribute_call(Node*, u32 nr, const u64* a); // the xattr calls, own_attributes.cpp
void free_attributes(Node*);

// --- own_names.cpp -------------------------------------------------------------------------------
i64 check_old(const Place&); // 0 if the place exists
i64 make_folder(Place&, u64 mode);
i64 make_special(Place&, u64 mode); // mknod
i64 unlink(Place&, u64 flags);
i64 rename(Place& from, Place& to, u32 flags);
i64 link(Place& from, Place& to);
i64 symlink(const char* target, Place&);

// --- own_locks.cpp -------------------------------------------------------------------------------
i64 flock(OwnFile*, u32 operation);
i64 record_lock(OwnFile*, u32 command, u64 at);
void drop_locks(OwnFile*);
void free_locks(Node*);

// --- own_fifo.cpp --------------------------------------------------------------------------------
i64 open_fifo(Node*, u32 flags);

} // namespace gk::own
