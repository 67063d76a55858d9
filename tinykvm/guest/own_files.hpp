// The machine's own file system in memory: /tmp and /dev/shm.
//
// All of it is guest memory, so reset, snapshot, clones and memory limits cover it like everything else of the
// program's. Names, sizes and owners live in the guest kernel's heap; contents in the area of files
// (layout::kFileArea), each file in one contiguous extent of a power of two, pages that were never written to
// untouched.
//
//   own_space.cpp    extents, contents of one file
//   own_tree.cpp     nodes, names, walking paths
//   own_file.cpp     open files: reading, writing, positions, listing
//   own_calls.cpp    calls that take a path or a descriptor
//   own_names.cpp    giving names, taking them away, moving them
//   own_locks.cpp    flock and record locks
//   own_fifo.cpp     named pipes
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
inline constexpr u64 kMaxName = 255, kMaxPath = 4096; // the NUL counted in the path only

struct Node;
inline constexpr u32 kProcVolume = 2; // nameless nodes of proc_paths.cpp
struct Entry {                        // a name in a folder
    Entry *bucket_next, *previous, *next;
    Node *folder, *node;
    u64 cookie; // position in the listing
    u32 hash, length;
    char name[1]; // and more
};
struct Lock;
struct Attribute;
struct Watch;

struct Node {
    struct {
        u64 data = 0, size = 0;
    } content; // the extent, 0 while there is none, and the file's size
    // The host's memory file that holds the content in place of the extent since the first shared mapping.
    i32 handle = abi::kNoHandle;
    u64 room = 0;        // bytes of the extent
    u64* held = nullptr; // a bit for each page of the extent that was ever written to
    u64 pages = 0;       // bits set
    u32 mode = 0, uid = 0, gid = 0;
    u32 links = 0, refs = 0; // names, and everything else that keeps it
    u64 ino = 0;
    u64 accessed = 0, modified = 0, changed = 0, born = 0; // ns since 1970
    u8 volume = 0;                                         // index of the root that it belongs to
    Node* parent = nullptr;                                // of a folder; null once it is removed
    Entry* name = nullptr;                                 // the newest of its names that is still there
    Entry *first = nullptr, *last = nullptr;
    u64 next_cookie = 3;
    u32 entries = 0, folders = 0;
    char* target = nullptr; // of a symlink
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
    u64 pages, most_pages, nodes, most_nodes;
};
Usage usage();
bool count_node(); // false: no more may be made
void uncount_node();
bool holds(const Node*, u64 page);
i64 make_room(Node*, u64 bytes);   // 0, -ENOSPC, -EFBIG
i64 hold(Node*, u64 from, u64 to); // marks the pages of [from, to) as written to, within the room; 0 or -ENOSPC
i64 set_size(Node*, u64 bytes);
i64 move_to_host(Node*);             // content from the extent to Node::handle
void punch(Node*, u64 from, u64 to); // zeroes, and gives whole pages back
void drop_content(Node*);
void content_changed(Node*); // mtime and ctime
i64 read_at(Node*, Cursor&, u64 offset);
i64 write_at(Node*, Cursor&, u64 offset);

// --- own_tree.cpp --------------------------------------------------------------------------------
// Who the program is to files; during the set-up there is no thread yet.
inline u32 own_uid() { return current ? current->ids.user.file : gk_shared_page.uid; }
inline u32 own_gid() { return current ? current->ids.group.file : gk_shared_page.gid; }
bool enabled();                         // some folder is the machine's own
Node* new_node(u32 mode, Node* folder); // owner, group and times as Linux sets them; null: ENOSPC
void keep(Node*);
void drop(Node*); // one reference less; frees what has neither names nor references
Entry* find_entry(const Node* folder, const char* name, u64 length);
i64 add_entry(Node* folder, const char* name, u64 length, Node*);
void remove_entry(Entry*);
bool permitted(const Node*, u32 want);               // 4 read, 2 write, 1 execute or search
bool may_remove(const Node* folder, const Node*);    // sticky bit
i64 path_of(const Node* folder, char* to, u64 room); // with the NUL; -ENOENT when it was removed
i64 path_of_name(const Node* folder, const char* name, u64 length, char* to, u64 room);

i64 path_of_node(const Node*, char* to, u64 room); // " (deleted)" where it has no name

// Where a path leads. `name` is empty when it ends in a root, "." or "..".
struct Place {
    Node *folder = nullptr, *node = nullptr; // folder: null when some folder on the way is not there
    char name[kMaxName + 1];
    u32 length = 0;
    bool must_be_folder = false;
    bool ends_in_dot = false, ends_in_dotdot = false;
    i64 error = 0; // a reason other than a missing last component
};
// A path text in the guest kernel's memory, NUL-terminated, which grows as links are put in.
class PathBuffer {
public:
    PathBuffer() = default;
    ~PathBuffer() { release(text_, kMaxPath); }
    PathBuffer(const PathBuffer&) = delete;
    PathBuffer& operator=(const PathBuffer&) = delete;
    bool make() { return text_ || (text_ = static_cast<char*>(allocate_dirty(kMaxPath))); }
    char* text() { return text_; }

private:
    char* text_ = nullptr;
};
// Whether an absolute path begins in a folder of the machine's own; `rest` is what follows.
Node* root_of(const char* path, const char*& rest);
// Walks `path`. False: it leads out of the machine's own folders, and `path` holds the absolute path to go on with.
bool walk(Place&, Node* start, PathBuffer& path, bool follow);
Node* current_folder(); // null: the host's
void set_current_folder(Node*);

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
// Tells who watches the node, and who watches the folder of its name.
void note(Node*, u32 what);
// Tells who watches the folder of a name that came or went.
void note_name(Node* folder, const char* name, u32 length, const Node*, u32 what, u32 cookie = 0);
u64 watch_bytes_ready(const File*); // FIONREAD of an inotify descriptor

// --- own_file.cpp --------------------------------------------------------------------------------
i64 open_node(Node*, u32 flags); // a new descriptor
i64 open_place(Place&, u32 flags, u32 mode);
i64 seek(OwnFile*, i64 offset, u32 whence);
i64 list(OwnFile*, u64 to, u64 bytes);
void fill_stat(const Node*, void* stat144);

// --- own_calls.cpp -------------------------------------------------------------------------------
i64 seek_data(const OwnFile*, i64 offset, bool hole);
// A call on a file by descriptor (`f`), with the numbers of Linux: fstat, ftruncate, fchmod ...
i64 handle_call(OwnFile* f, u32 nr, const Args&);
// A call on what a path leads to; a1 and so on are its arguments as Linux has them with a folder's descriptor.
i64 path_call(Place&, u32 nr, const u64* a);
i64 map(OwnFile*, const Args&);
i64 attribute_call(Node*, u32 nr, const u64* a); // the xattr calls, own_attributes.cpp
void free_attributes(Node*);

// --- own_names.cpp
// -----------------------------------------------------------------------------------------------------
i64 check_old(const Place&); // 0 when it is there
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
