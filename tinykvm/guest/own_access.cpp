// Who may do what with the machine's own files: owner, groups, mode and capabilities (fs/namei.c, fs/attr.c).
#include "tinykvm/guest/own_files.hpp"

namespace gk::own {
namespace {

enum Bits : u32 { kSetUser = 04000, kSetGroup = 02000, kGroupExecutes = 0010 };

bool may(Capability which) { return current ? current->ids.may(which) : gk_shared_page.uid == 0; }
bool in_group(u32 gid) { return current ? current->ids.in_group(gid) : gid == gk_shared_page.gid; }
bool keeps_set_group(u32 gid) { return in_group(gid) || may(kCapFsetid); }

} // namespace

bool permitted(const Node* n, u32 want) {
    const u32 bits = n->uid == own_uid() ? n->mode >> 6 : in_group(n->gid) ? n->mode >> 3 : n->mode;
    if ((want & ~bits & 7) == 0)
        return true;
    return may(kCapDacOverride) && (!(want & 1) || n->is_folder() || (n->mode & 0111));
}

bool owns(const Node* n) { return n->uid == own_uid() || may(kCapFowner); }

bool may_remove(const Node* folder, const Node* n) {
    return permitted(folder, 3) && (!(folder->mode & 01000) || folder->uid == own_uid() || owns(n));
}

u32 mode_for_group(u32 mode, u32 gid) { return keeps_set_group(gid) ? mode : mode & ~u32{kSetGroup}; }

void drop_set_ids(Node* n) {
    n->mode &= ~u32{kSetUser};
    // Without the group's right to execute, the bit once meant mandatory locking.
    if ((n->mode & kGroupExecutes) || !keeps_set_group(n->gid))
        n->mode &= ~u32{kSetGroup};
}

void drop_set_ids_on_write(Node* n) {
    if (n->format() == kRegular && !may(kCapFsetid))
        drop_set_ids(n);
}

} // namespace gk::own
