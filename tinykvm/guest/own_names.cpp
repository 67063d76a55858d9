// Calls that create, remove and rename names in the machine's own folders.
#include "tinykvm/guest/own_files.hpp"

namespace gk::own {
namespace {

constexpr u32 kMaxLinksOfAFile = 65000;

i64 check_new(const Place& place) {
    if (place.error < 0)
        return place.error;
    if (place.node)
        return -EEXIST;
    return permitted(place.folder, 3) ? 0 : -EACCES;
}

i64 add(Place& place, Node* n) {
    if (!n)
        return -ENOSPC;
    keep(n);
    const bool another = n->links > 0 && !n->is_folder();
    const i64 result = add_entry(place.folder, place.name, place.length, n);
    if (result == 0 && another)
        note_links(n);
    if (result == 0)
        note_name(place.folder, place.name, place.length, n, kNoteCreate);
    drop(n);
    return result;
}

Entry* entry_of(const Place& place) { return find_entry(place.folder, place.name, place.length); }

// A folder that has lost its name: "." is gone, too.
void bury(Node* folder) {
    folder->parent = nullptr;
    folder->links = 0;
}

void take_away(Place& place) {
    Node* n = place.node;
    keep(n);
    remove_entry(entry_of(place));
    if (n->is_folder())
        bury(n);
    else
        note_links(n);
    note_name(place.folder, place.name, place.length, n, kNoteDelete);
    if (n->links == 0)
        note(n, kNoteDeleteSelf);
    drop(n);
}

// Whether the name of an existing file may be removed: 0 or -errno. For a place without a name, such as a root or ".",
// returns `of_unnamed`.
i64 check_removal(const Place& place, i64 of_unnamed) {
    if (const i64 error = check_old(place); error < 0)
        return error;
    if (place.length == 0)
        return of_unnamed;
    if (!may_remove(place.folder, place.node))
        return permitted(place.folder, 3) ? -EPERM : -EACCES;
    return 0;
}

i64 remove_folder(Place& place) {
    if (place.ends_in_dot)
        return -EINVAL;
    if (place.ends_in_dotdot)
        return -ENOTEMPTY;
    if (const i64 error = check_removal(place, -EBUSY); error < 0)
        return error;
    if (!place.node->is_folder())
        return -ENOTDIR;
    if (place.node->entries)
        return -ENOTEMPTY;
    take_away(place);
    return 0;
}

bool is_above(const Node* folder, const Node* n) {
    for (const Node* at = n;; at = at->parent) {
        if (at == folder)
            return true;
        if (!at || !at->parent || at->parent == at)
            return false;
    }
}

// The events of `n`, which has moved (linux/fsnotify.h, fsnotify_move). `replaced` was at its new name before.
void note_move(const Place& from, const Place& to, Node* n, Node* replaced = nullptr) {
    static u32 cookie = 0;
    const u32 move = ++cookie;
    note_name(from.folder, from.name, from.length, n, kNoteMovedFrom, move);
    note_name(to.folder, to.name, to.length, n, kNoteMovedTo, move);
    if (replaced)
        note_links(replaced);
    note(n, kNoteMoveSelf);
    if (replaced && replaced->links == 0)
        note(replaced, kNoteDeleteSelf);
}

// The ways of a rename. Each changes all or nothing.
i64 exchange(Place& from, Place& to) {
    exchange_entries(entry_of(from), entry_of(to));
    note_move(from, to, from.node);
    note_move(to, from, to.node);
    return 0;
}

i64 replace(Place& from, Place& to) {
    Node* gone = to.node;
    remove_entry(entry_of(from));
    replace_entry(entry_of(to), from.node);
    if (gone->is_folder())
        bury(gone);
    note_move(from, to, from.node, gone);
    return 0;
}

i64 move(Place& from, Place& to) {
    const auto place_at = [&](Place& place) { return add_entry(place.folder, place.name, place.length, from.node); };
    i64 error = place_at(to);
    if (error < 0 && error != -ENOSPC)
        return error;
    remove_entry(entry_of(from));
    if (error < 0)
        error = place_at(to); // there was no memory for both names: that of the old one may do
    if (error < 0) {
        (void)place_at(from); // cannot fail: it takes the memory of the removed name
        return error;
    }
    note_move(from, to, from.node);
    return 0;
}

} // namespace

i64 check_old(const Place& place) {
    if (place.error < 0)
        return place.error;
    return place.node ? 0 : -ENOENT;
}

i64 make_folder(Place& place, u64 mode) {
    if (place.error == -ENOTDIR && place.node)
        place.error = 0; // "file/": the name exists, so that the error is EEXIST
    if (const i64 error = check_new(place); error < 0)
        return error;
    Node* n = new_node(kDirectory | (static_cast<u32>(mode) & 01777 & ~creation_mask()), place.folder);
    if (n)
        n->links = 1; // its own "."
    return add(place, n);
}

i64 make_special(Place& place, u64 mode) {
    const u32 format = static_cast<u32>(mode) & kFormat;
    if (format == kDirectory)
        return -EPERM;
    if (format != 0 && format != kRegular && format != kFifo && format != kSocket)
        return format == 0020000 || format == 0060000 ? -EPERM : -EINVAL;
    if (const i64 error = check_new(place); error < 0)
        return error;
    if (place.must_be_folder)
        return -ENOENT;
    return add(place, new_node((format ? format : kRegular) | (static_cast<u32>(mode) & 07777 & ~creation_mask()),
                               place.folder));
}

i64 unlink(Place& place, u64 flags) {
    if (flags & 0x200) // AT_REMOVEDIR
        return remove_folder(place);
    if (flags)
        return -EINVAL;
    if (place.ends_in_dot || place.ends_in_dotdot)
        return -EISDIR;
    if (const i64 error = check_removal(place, -EISDIR); error < 0)
        return error;
    if (place.node->is_folder())
        return -EISDIR;
    take_away(place);
    return 0;
}

i64 rename(Place& from, Place& to, u32 flags) {
    constexpr u32 kNoReplace = 1, kExchange = 2;
    if (flags & ~(kNoReplace | kExchange) || flags == (kNoReplace | kExchange))
        return -EINVAL;
    if (from.error < 0)
        return from.error;
    if (to.error < 0 && !(to.error == -ENOTDIR && to.node))
        return to.error;
    if (from.length == 0 || to.length == 0)
        return -EBUSY;
    if (from.folder->volume != to.folder->volume)
        return -EXDEV;
    if (!from.node)
        return -ENOENT;
    Node *a = from.node, *b = to.node;
    if ((flags & kNoReplace) && b)
        return -EEXIST;
    if ((flags & kExchange) && !b)
        return -ENOENT;
    if (to.must_be_folder && !a->is_folder())
        return -ENOTDIR;
    if (a->is_folder() && is_above(a, to.folder))
        return -EINVAL;
    if ((flags & kExchange) ? b->is_folder() && is_above(b, from.folder)
                            : b && b->is_folder() && is_above(b, from.folder) && b != a)
        return (flags & kExchange) ? -EINVAL : -ENOTEMPTY;
    if (!may_remove(from.folder, a) || !permitted(to.folder, 3) || (b && !may_remove(to.folder, b)))
        return permitted(from.folder, 3) && permitted(to.folder, 3) ? -EPERM : -EACCES;
    if (a == b)
        return 0;
    if (b && !(flags & kExchange)) {
        if (b->is_folder() && !a->is_folder())
            return -EISDIR;
        if (!b->is_folder() && a->is_folder())
            return -ENOTDIR;
        if (b->is_folder() && b->entries)
            return -ENOTEMPTY;
    }
    keep(a);
    if (b)
        keep(b);
    const i64 result = (flags & kExchange) ? exchange(from, to) : b ? replace(from, to) : move(from, to);
    if (b)
        drop(b);
    drop(a);
    return result;
}

i64 link(Place& from, Place& to) {
    if (const i64 error = check_old(from); error < 0)
        return error;
    if (from.node->is_folder())
        return to.node ? -EEXIST : -EPERM;
    if (const i64 error = check_new(to); error < 0)
        return error;
    if (to.must_be_folder)
        return -ENOENT;
    if (from.folder && from.node->volume != to.folder->volume)
        return -EXDEV;
    if (from.node->links >= kMaxLinksOfAFile)
        return -31; // EMLINK
    return add(to, from.node);
}

i64 symlink(const char* target, Place& place) {
    if (const i64 error = check_new(place); error < 0)
        return error;
    if (place.must_be_folder)
        return -ENOENT;
    u64 length = 0;
    while (target[length])
        ++length;
    Node* n = new_node(kLink | 0777, place.folder);
    char* text = n ? static_cast<char*>(allocate(length + 1)) : nullptr;
    if (!text) {
        if (n) {
            keep(n);
            drop(n);
        }
        return -ENOSPC;
    }
    memcpy(text, target, length + 1);
    n->target = text;
    n->content.size = length;
    return add(place, n);
}

} // namespace gk::own
