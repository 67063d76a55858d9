// Nodes and names in the machine's own folders, and path walks.
#include "tinykvm/guest/own_files.hpp"

namespace gk::own {
namespace {

constexpr u32 kBuckets = 4096;
constexpr u32 kMaxLinks = 40; // MAXSYMLINKS of Linux
// By Node::volume. The first two are also the bits of abi::Shared::own_folders.
constexpr const char* kRoots[] = {"/tmp", "/dev/shm", "/proc/self/fd"};
constexpr u32 kRootCount = 2;

Entry** buckets;
Node* roots[kRootCount];
Node* cwd;
u64 last_ino = 1;

u32 hash_of(const Node* folder, const char* name, u64 length) {
    u64 h = 0xcbf29ce484222325 ^ folder->ino * 0x9e3779b97f4a7c15;
    for (u64 i = 0; i < length; ++i)
        h = (h ^ static_cast<u8>(name[i])) * 0x100000001b3;
    return static_cast<u32>(h ^ h >> 32);
}

u64 entry_bytes(u64 length) { return sizeof(Entry) + length; }

u64 length_of(const char* text) {
    u64 n = 0;
    while (text[n])
        ++n;
    return n;
}

bool same(const char* a, const char* b, u64 length) {
    for (u64 i = 0; i < length; ++i)
        if (a[i] != b[i])
            return false;
    return true;
}

Node* make_root(u32 index) {
    const u32 uid = own_uid(), gid = own_gid();
    Node* n = new_node(kDirectory | 01777, nullptr);
    if (!n)
        return nullptr;
    n->uid = uid;
    n->gid = gid;
    n->parent = n;
    n->links = 2;
    n->refs = 1;
    n->volume = static_cast<u8>(index);
    return n;
}

Node* root(u32 index) {
    if (!(gk_shared_page.own_folders >> index & 1))
        return nullptr;
    if (!roots[index])
        roots[index] = make_root(index);
    return roots[index];
}

void free_node(Node* n) {
    while (n->first) { // only folders of proc_paths.cpp still have entries
        if (n->first->node->is_folder())
            n->first->node->parent = nullptr; // it may still be open
        remove_entry(n->first);
    }
    drop_content(n);
    free_locks(n);
    free_attributes(n);
    if (n->target)
        release(n->target, length_of(n->target) + 1);
    uncount_node();
    destroy(n);
}

// Makes the entry a name of the node, its newest.
void attach(Entry* e, Node* n) {
    e->node = n;
    e->newer = nullptr;
    e->older = n->name;
    if (n->name)
        n->name->newer = e;
    n->name = e;
    ++n->links;
    if (n->is_folder()) {
        n->parent = e->folder;
        ++e->folder->folders;
        ++e->folder->links;
    }
}

void detach(Entry* e) {
    Node* n = e->node;
    (e->newer ? e->newer->older : n->name) = e->older;
    if (e->older)
        e->older->newer = e->newer;
    --n->links;
    if (n->is_folder()) {
        --e->folder->folders;
        --e->folder->links;
    }
}

const char* skip_slashes(const char* p) {
    while (*p == '/' || (*p == '.' && (p[1] == '/' || p[1] == 0)))
        ++p;
    return p;
}

bool component(const char*& p, const char* name) {
    const char* at = skip_slashes(p);
    const u64 n = length_of(name);
    for (u64 i = 0; i < n; ++i)
        if (at[i] != name[i])
            return false;
    if (at[n] != 0 && at[n] != '/')
        return false;
    p = at + n;
    return true;
}

} // namespace

bool enabled() { return gk_shared_page.own_folders != 0; }

Node* new_node(u32 mode, Node* folder) {
    if (!count_node())
        return nullptr;
    Node* n = make<Node>();
    if (!n) {
        uncount_node();
        return nullptr;
    }
    n->mode = mode;
    n->uid = own_uid();
    n->gid = folder && (folder->mode & 02000) ? folder->gid : own_gid();
    if (folder && (folder->mode & 02000)) {
        if (n->is_folder())
            n->mode |= 02000;
        else if (n->mode & 0010) // fs/inode.c, mode_strip_sgid
            n->mode = mode_for_group(n->mode, n->gid);
    }
    n->ino = ++last_ino;
    n->volume = folder ? folder->volume : 0;
    n->accessed = n->modified = n->changed = n->born = now_real();
    return n;
}

void keep(Node* n) { ++n->refs; }

void drop(Node* n) {
    if (--n->refs == 0 && n->links == 0)
        free_node(n);
}

Entry* find_entry(const Node* folder, const char* name, u64 length) {
    if (!buckets)
        return nullptr;
    const u32 h = hash_of(folder, name, length);
    for (Entry* e = buckets[h % kBuckets]; e; e = e->bucket_next)
        if (e->hash == h && e->folder == folder && e->length == length && same(e->name, name, length))
            return e;
    return nullptr;
}

i64 add_entry(Node* folder, const char* name, u64 length, Node* n) {
    if (!folder->parent) // removed
        return -ENOENT;
    if (!buckets && !(buckets = static_cast<Entry**>(allocate(kBuckets * sizeof(Entry*)))))
        return -ENOSPC;
    auto* e = static_cast<Entry*>(allocate(entry_bytes(length)));
    if (!e)
        return -ENOSPC;
    e->folder = folder;
    e->length = static_cast<u32>(length);
    memcpy(e->name, name, length);
    e->hash = hash_of(folder, name, length);
    e->cookie = folder->next_cookie++;
    e->bucket_next = buckets[e->hash % kBuckets];
    buckets[e->hash % kBuckets] = e;
    e->previous = folder->last;
    (folder->last ? folder->last->next : folder->first) = e;
    folder->last = e;
    ++folder->entries;
    attach(e, n);
    folder->modified = folder->changed = n->changed = now_real();
    return 0;
}

void remove_entry(Entry* e) {
    Node *folder = e->folder, *n = e->node;
    Entry** at = &buckets[e->hash % kBuckets];
    while (*at != e)
        at = &(*at)->bucket_next;
    *at = e->bucket_next;
    (e->previous ? e->previous->next : folder->first) = e->next;
    (e->next ? e->next->previous : folder->last) = e->previous;
    --folder->entries;
    detach(e);
    release(e, entry_bytes(e->length));
    folder->modified = folder->changed = n->changed = now_real();
    if (n->links == 0 && n->refs == 0)
        free_node(n);
}

void exchange_entries(Entry* x, Entry* y) {
    Node *a = x->node, *b = y->node;
    detach(x);
    detach(y);
    attach(x, b);
    attach(y, a);
    x->folder->modified = x->folder->changed = y->folder->modified = y->folder->changed = a->changed = b->changed =
        now_real();
}

void replace_entry(Entry* e, Node* n) {
    Node* before = e->node;
    detach(e);
    attach(e, n);
    e->folder->modified = e->folder->changed = before->changed = n->changed = now_real();
    if (before->links == 0 && before->refs == 0)
        free_node(before);
}

i64 path_of_name(const Node* folder, const char* name, u64 length, char* to, u64 room) {
    // Built backwards from the end of the buffer, then moved to its beginning.
    u64 at = room;
    const auto put = [&](const char* text, u64 n) {
        if (at < n + 1)
            return false;
        at -= n;
        memcpy(to + at, text, n);
        return true;
    };
    if (!put("", 1) || (length && (!put(name, length) || !put("/", 1))))
        return -ENAMETOOLONG;
    while (folder->parent != folder) {
        const Node* up = folder->parent;
        if (!up)
            return -ENOENT;
        const Entry* e = folder->name;
        if (!e || !put(e->name, e->length) || !put("/", 1))
            return e ? -ENAMETOOLONG : -ENOENT;
        folder = up;
    }
    const char* text = kRoots[folder->volume];
    if (!put(text, length_of(text)))
        return -ENAMETOOLONG;
    for (u64 i = 0; at + i < room; ++i)
        to[i] = to[at + i];
    return static_cast<i64>(room - at);
}

i64 path_of(const Node* folder, char* to, u64 room) { return path_of_name(folder, "", 0, to, room); }

i64 path_of_node(const Node* n, char* to, u64 room) {
    if (n->is_folder() && n->parent)
        return path_of(n, to, room);
    if (const Entry* e = n->name)
        return path_of_name(e->folder, e->name, e->length, to, room);
    // Linux shows the file's last name, which is not kept here.
    constexpr char gone[] = "/#0 (deleted)";
    const char* head = kRoots[n->volume];
    const u64 length = length_of(head);
    memcpy(to, head, length);
    memcpy(to + length, gone, sizeof(gone));
    return static_cast<i64>(length + sizeof(gone));
}

Node* root_of(const char* path, const char*& rest) {
    if (*path != '/')
        return nullptr;
    const char* p = path;
    if (component(p, "tmp")) {
        rest = p;
        return root(0);
    }
    p = path;
    if (component(p, "dev") && component(p, "shm")) {
        rest = p;
        return root(1);
    }
    return nullptr;
}

Node* current_folder() { return cwd; }

void set_current_folder(Node* n) {
    if (n)
        keep(n);
    if (cwd)
        drop(cwd);
    cwd = n;
}

namespace {

// Replaces the path by "head/at"; false if that is too long.
bool prepend(PathBuffer& path, const char* at, const char* head) {
    char* text = path.text();
    const u64 head_length = length_of(head), rest = length_of(at);
    if (head_length + 1 + rest + 1 > kMaxPath)
        return false;
    const u64 from = static_cast<u64>(at - text), to = head_length + 1;
    if (to <= from)
        for (u64 i = 0; i <= rest; ++i)
            text[to + i] = text[from + i];
    else
        for (u64 i = rest + 1; i-- > 0;)
            text[to + i] = text[from + i];
    memcpy(text, head, head_length);
    text[head_length] = '/';
    return true;
}

} // namespace

bool walk(Place& place, Node* start, PathBuffer& path, bool follow) {
    u32 links = 0;
    Node* here = start;
    const char* p = path.text();
    place = Place{};
    const auto fail = [&](i64 error) {
        place.error = error;
        return true;
    };
    const auto arrive = [&](Node* n) { // the walk is at a folder, without a name
        place.folder = n->parent ? n->parent : n;
        place.node = n;
        place.length = 0;
    };
    arrive(here);
    for (;;) {
        const char* before = p;
        while (*p == '/')
            ++p;
        if (*p == 0) {
            place.must_be_folder |= p != before;
            return true;
        }
        const char* name = p;
        while (*p && *p != '/')
            ++p;
        const u64 length = static_cast<u64>(p - name);
        if (!here->is_folder()) {
            place.folder = place.node = nullptr;
            return fail(-ENOTDIR);
        }
        place.ends_in_dot = place.ends_in_dotdot = false;
        if (length == 1 && name[0] == '.') {
            place.must_be_folder = place.ends_in_dot = true;
            arrive(here);
            continue;
        }
        if (!permitted(here, 1)) {
            place.folder = nullptr;
            place.node = nullptr;
            return fail(-EACCES);
        }
        if (length == 2 && name[0] == '.' && name[1] == '.') {
            if (here->parent == here) {
                // The parents of the machine's own folders are on the host.
                const char* up = here->volume == 0 ? "" : here->volume == kProcVolume ? "/proc/self" : "/dev";
                return prepend(path, p, up) ? false : fail(-ENAMETOOLONG);
            }
            here = here->parent ? here->parent : here;
            place.must_be_folder = place.ends_in_dotdot = true;
            arrive(here);
            continue;
        }
        if (length > kMaxName)
            return fail(-ENAMETOOLONG);
        const char* after = p;
        while (*after == '/')
            ++after;
        const bool last = *after == 0;
        Entry* e = find_entry(here, name, length);
        Node* n = e ? e->node : nullptr;
        if (n && n->format() == kLink && (!last || follow || *p == '/')) {
            if (++links > kMaxLinks)
                return fail(-ELOOP);
            const bool slash = *p == '/';
            if (!prepend(path, last ? after : p, n->target))
                return fail(-ENAMETOOLONG);
            // prepend() adds a slash after the target: remove it, unless the path had one there.
            if (last && !slash) {
                char* text = path.text();
                text[length_of(n->target)] = 0;
            }
            p = path.text();
            if (*p == '/') {
                const char* rest;
                Node* r = root_of(p, rest);
                if (!r)
                    return false;
                here = r;
                p = rest;
            }
            arrive(here);
            continue;
        }
        place.folder = here;
        place.node = n;
        place.length = static_cast<u32>(length);
        memcpy(place.name, name, length);
        place.name[length] = 0;
        if (last) {
            place.must_be_folder = *p == '/';
            if (n && place.must_be_folder && !n->is_folder())
                place.error = -ENOTDIR;
            return true;
        }
        if (!n) {
            place.folder = nullptr;
            return fail(-ENOENT);
        }
        here = n;
    }
}

} // namespace gk::own
