// Extended attributes of the machine's own files: the user.* namespace, as on tmpfs.
#include "tinykvm/guest/own_files.hpp"

namespace gk::own {

struct Attribute {
    Attribute* next;
    u32 name_length, bytes; // `data` holds the name with its NUL, then the value
    char data[1];
};

namespace {

constexpr u64 kMaxBytes = 65536, kMaxOfAFile = 1 << 20;

u64 size_of(const Attribute* a) { return sizeof(Attribute) + a->name_length + a->bytes; }

bool same(const char* a, const char* b) {
    while (*a && *a == *b)
        ++a, ++b;
    return *a == *b;
}

Attribute** find(Node* n, const char* name) {
    Attribute** at = &n->attributes;
    while (*at && !same((*at)->data, name))
        at = &(*at)->next;
    return at;
}

i64 take_name(char (&name)[kMaxName + 1], u64 from) {
    const i64 n = string_from_user(name, from, sizeof(name));
    if (n == -ENAMETOOLONG || n == 0)
        return -ERANGE;
    if (n < 0)
        return n;
    constexpr char prefix[] = "user.";
    for (u64 i = 0; i < sizeof(prefix) - 1; ++i)
        if (name[i] != prefix[i])
            return -EOPNOTSUPP;
    return name[sizeof(prefix) - 1] ? n : -EINVAL;
}

i64 set(Node* n, const char* name, u64 length, u64 from, u64 bytes, u64 flags) {
    constexpr u64 kCreate = 1, kReplace = 2;
    if (flags & ~(kCreate | kReplace))
        return -EINVAL;
    if (bytes > kMaxBytes)
        return -7; // E2BIG
    if (n->format() != kRegular && !n->is_folder())
        return -EPERM;
    if (!permitted(n, 2))
        return -EACCES;
    Attribute** at = find(n, name);
    if (*at && (flags & kCreate))
        return -EEXIST;
    if (!*at && (flags & kReplace))
        return -ENODATA;
    u64 total = bytes;
    for (const Attribute* a = n->attributes; a; a = a->next)
        total += size_of(a);
    if (total > kMaxOfAFile)
        return -ENOSPC;
    auto* fresh = static_cast<Attribute*>(allocate(sizeof(Attribute) + length + 1 + bytes));
    if (!fresh)
        return -ENOSPC;
    fresh->name_length = static_cast<u32>(length + 1);
    fresh->bytes = static_cast<u32>(bytes);
    memcpy(fresh->data, name, length + 1);
    if (bytes && !copy_from_user(fresh->data + length + 1, from, bytes)) {
        release(fresh, size_of(fresh));
        return -EFAULT;
    }
    if (Attribute* old = *at) {
        *at = old->next;
        release(old, size_of(old));
    }
    fresh->next = n->attributes;
    n->attributes = fresh;
    n->changed = now_real();
    note(n, kNoteAttributes);
    return 0;
}

i64 list_names(const Node* n, u64 to, u64 room) {
    u64 total = 0;
    for (const Attribute* a = n->attributes; a; a = a->next)
        total += a->name_length;
    if (room == 0)
        return static_cast<i64>(total);
    if (room < total)
        return -ERANGE;
    for (const Attribute* a = n->attributes; a; a = a->next) {
        if (!copy_to_user(to, a->data, a->name_length))
            return -EFAULT;
        to += a->name_length;
    }
    return static_cast<i64>(total);
}

} // namespace

i64 attribute_call(Node* n, u32 nr, const u64* a) {
    if (nr >= 194 && nr <= 196)
        return list_names(n, a[0], a[1]);
    char name[kMaxName + 1];
    const i64 length = take_name(name, a[0]);
    if (length < 0)
        return length;
    if (nr >= 188 && nr <= 190)
        return set(n, name, static_cast<u64>(length), a[1], a[2], a[3]);
    Attribute** at = find(n, name);
    if (nr >= 197) {
        if (!permitted(n, 2))
            return -EACCES;
        if (!*at)
            return -ENODATA;
        Attribute* old = *at;
        *at = old->next;
        release(old, size_of(old));
        n->changed = now_real();
        note(n, kNoteAttributes);
        return 0;
    }
    if (!permitted(n, 4))
        return -EACCES;
    if (!*at)
        return -ENODATA;
    const Attribute* found = *at;
    if (a[2] == 0)
        return found->bytes;
    if (a[2] < found->bytes)
        return -ERANGE;
    return copy_to_user(a[1], found->data + found->name_length, found->bytes) ? static_cast<i64>(found->bytes)
                                                                              : -EFAULT;
}

void free_attributes(Node* n) {
    while (Attribute* a = n->attributes) {
        n->attributes = a->next;
        release(a, size_of(a));
    }
}

} // namespace gk::own
