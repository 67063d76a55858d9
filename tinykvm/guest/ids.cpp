// User and group ids, process groups and sessions (kernel/sys.c, kernel/groups.c).
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

constexpr u32 kNone = ~u32{0};
constexpr u32 kMaxGroups = 65536;

u64 bytes_of(u32 count) { return sizeof(Groups) + u64{count} * sizeof(u32); }

void unref_groups(Groups* groups) {
    if (groups && --groups->refs == 0)
        release(groups, bytes_of(groups->count));
}

bool is_one_of(u32 id, const Ids& ids) { return id == ids.real || id == ids.effective || id == ids.saved; }

// Adapts the capabilities after a change of user ids (security/commoncap.c, cap_emulate_setxuid).
void follow_user_change(Credentials& now, const Ids& old) {
    if (now.secure_bits & kNoSetuidFixup)
        return;
    const auto any_root = [](const Ids& ids) { return ids.real == 0 || ids.effective == 0 || ids.saved == 0; };
    if (any_root(old) && !any_root(now.user)) {
        if (!(now.secure_bits & kKeepCaps))
            now.permitted = now.effective = 0;
        now.ambient = 0;
    }
    if (old.effective == 0 && now.user.effective != 0)
        now.effective = 0;
    if (old.effective != 0 && now.user.effective == 0)
        now.effective = now.permitted;
}

// setuid and setgid: a privileged caller sets all ids. Others may only switch to their real or saved id.
i64 set_one(Ids& ids, u32 id, bool may) {
    if (id == kNone)
        return -EINVAL;
    if (may)
        ids = {id, id, id, id};
    else if (id == ids.real || id == ids.saved)
        ids.effective = ids.file = id;
    else
        return -EPERM;
    return 0;
}

i64 set_real_effective(Ids& ids, u32 real, u32 effective, bool may) {
    Ids fresh = ids;
    if (real != kNone) {
        if (!may && real != ids.real && real != ids.effective)
            return -EPERM;
        fresh.real = real;
    }
    if (effective != kNone) {
        if (!may && !is_one_of(effective, ids))
            return -EPERM;
        fresh.effective = effective;
    }
    if (real != kNone || (effective != kNone && effective != ids.real))
        fresh.saved = fresh.effective;
    fresh.file = fresh.effective;
    ids = fresh;
    return 0;
}

i64 set_three(Ids& ids, u32 real, u32 effective, u32 saved, bool may) {
    const u32 wanted[] = {real, effective, saved};
    for (const u32 id : wanted)
        if (!may && id != kNone && !is_one_of(id, ids))
            return -EPERM;
    ids.real = real != kNone ? real : ids.real;
    ids.effective = effective != kNone ? effective : ids.effective;
    ids.saved = saved != kNone ? saved : ids.saved;
    ids.file = ids.effective;
    return 0;
}

// Changes user ids, and adapts the capabilities.
template <class Change>
i64 change_user(Change change) {
    Credentials& now = current->ids;
    const Ids old = now.user;
    const i64 result = change(now.user, now.may(kCapSetuid));
    if (result == 0)
        follow_user_change(now, old);
    return result;
}

i64 put_three(const Args& c, const Ids& ids) {
    return put_user(c.a[0], ids.real) && put_user(c.a[1], ids.effective) && put_user(c.a[2], ids.saved) ? 0 : -EFAULT;
}

void sift_down(u32* ids, u32 at, u32 count) {
    for (u32 child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
        if (child + 1 < count && ids[child + 1] > ids[child])
            ++child;
        if (ids[at] >= ids[child])
            return;
        const u32 swap = ids[at];
        ids[at] = ids[child];
        ids[child] = swap;
    }
}

void sort(u32* ids, u32 count) {
    for (u32 at = count / 2; at-- > 0;)
        sift_down(ids, at, count);
    for (u32 end = count; end-- > 1;) {
        const u32 swap = ids[0];
        ids[0] = ids[end];
        ids[end] = swap;
        sift_down(ids, 0, end);
    }
}

// The program has a parent outside the machine and is in its process group and session, as if started by a shell
// without job control.
constexpr u32 kParent = abi::kParentPid;
bool leads_group, leads_session;

u32 own_group() { return leads_group ? gk_shared_page.pid : kParent; }
u32 own_session() { return leads_session ? gk_shared_page.pid : kParent; }

} // namespace

bool Credentials::in_group(std::uint32_t id) const {
    if (id == group.file)
        return true;
    for (u32 i = 0; groups && i < groups->count; ++i)
        if (groups->ids[i] == id)
            return true;
    return false;
}

void first_credentials(Thread* t) {
    const u32 uid = gk_shared_page.uid, gid = gk_shared_page.gid;
    t->ids.user = {uid, uid, uid, uid};
    t->ids.group = {gid, gid, gid, gid};
    if (uid == 0)
        t->ids.permitted = t->ids.effective = kOfferedCapabilities;
    if (auto* groups = static_cast<Groups*>(allocate(bytes_of(1)))) {
        groups->refs = 1;
        groups->count = 1;
        groups->ids[0] = gid;
        t->ids.groups = groups;
    }
}

void inherit_credentials(Thread* to, const Thread* from) {
    to->ids = from->ids;
    if (to->ids.groups)
        ++to->ids.groups->refs;
}

void drop_credentials(Thread* t) {
    unref_groups(t->ids.groups);
    t->ids.groups = nullptr;
}

i64 sys_getuid(const Args&) { return current->ids.user.real; }
i64 sys_geteuid(const Args&) { return current->ids.user.effective; }
i64 sys_getgid(const Args&) { return current->ids.group.real; }
i64 sys_getegid(const Args&) { return current->ids.group.effective; }
i64 sys_getresuid(const Args& c) { return put_three(c, current->ids.user); }
i64 sys_getresgid(const Args& c) { return put_three(c, current->ids.group); }

i64 sys_setuid(const Args& c) {
    return change_user([&](Ids& ids, bool may) { return set_one(ids, static_cast<u32>(c.a[0]), may); });
}
i64 sys_setreuid(const Args& c) {
    return change_user([&](Ids& ids, bool may) {
        return set_real_effective(ids, static_cast<u32>(c.a[0]), static_cast<u32>(c.a[1]), may);
    });
}
i64 sys_setresuid(const Args& c) {
    return change_user([&](Ids& ids, bool may) {
        return set_three(ids, static_cast<u32>(c.a[0]), static_cast<u32>(c.a[1]), static_cast<u32>(c.a[2]), may);
    });
}

i64 sys_setgid(const Args& c) {
    return set_one(current->ids.group, static_cast<u32>(c.a[0]), current->ids.may(kCapSetgid));
}
i64 sys_setregid(const Args& c) {
    return set_real_effective(current->ids.group, static_cast<u32>(c.a[0]), static_cast<u32>(c.a[1]),
                              current->ids.may(kCapSetgid));
}
i64 sys_setresgid(const Args& c) {
    return set_three(current->ids.group, static_cast<u32>(c.a[0]), static_cast<u32>(c.a[1]), static_cast<u32>(c.a[2]),
                     current->ids.may(kCapSetgid));
}

// These two return the old id, whether they changed it or not.
i64 sys_setfsuid(const Args& c) {
    Credentials& now = current->ids;
    const u32 old = now.user.file, fresh = static_cast<u32>(c.a[0]);
    if (fresh == kNone || (!is_one_of(fresh, now.user) && fresh != old && !now.may(kCapSetuid)))
        return old;
    now.user.file = fresh;
    if (!(now.secure_bits & kNoSetuidFixup)) {
        if (old == 0 && fresh != 0)
            now.effective &= ~kFileCapabilities;
        if (old != 0 && fresh == 0)
            now.effective |= now.permitted & kFileCapabilities;
    }
    return old;
}
i64 sys_setfsgid(const Args& c) {
    Credentials& now = current->ids;
    const u32 old = now.group.file, fresh = static_cast<u32>(c.a[0]);
    if (fresh != kNone && (is_one_of(fresh, now.group) || now.may(kCapSetgid)))
        now.group.file = fresh;
    return old;
}

i64 sys_getgroups(const Args& c) {
    const i32 room = static_cast<i32>(c.a[0]);
    const Groups* groups = current->ids.groups;
    const u32 count = groups ? groups->count : 0;
    if (room < 0 || (room > 0 && static_cast<u32>(room) < count))
        return -EINVAL;
    if (room > 0 && count > 0 && !copy_to_user(c.a[1], groups->ids, count * sizeof(u32)))
        return -EFAULT;
    return count;
}

i64 sys_setgroups(const Args& c) {
    const u32 count = static_cast<u32>(c.a[0]);
    if (!current->ids.may(kCapSetgid))
        return -EPERM;
    if (count > kMaxGroups)
        return -EINVAL;
    auto* fresh = static_cast<Groups*>(allocate(bytes_of(count)));
    if (!fresh)
        return -ENOMEM;
    fresh->refs = 1;
    fresh->count = count;
    i64 error = count && !copy_from_user(fresh->ids, c.a[1], count * sizeof(u32)) ? -EFAULT : 0;
    for (u32 i = 0; error == 0 && i < count; ++i)
        if (fresh->ids[i] == kNone)
            error = -EINVAL;
    if (error < 0) {
        release(fresh, bytes_of(count));
        return error;
    }
    sort(fresh->ids, count);
    drop_credentials(current);
    current->ids.groups = fresh;
    return 0;
}

// --- process groups and sessions -----------------------------------------------------------------

void leave_group() { leads_group = leads_session = false; }

void publish_group(abi::SelfState& self) {
    self.leads_group = leads_group;
    self.leads_session = leads_session;
}

i64 sys_getppid(const Args&) { return own_parent(); }
i64 sys_getpgrp(const Args&) { return own_group(); }

i64 sys_getpgid(const Args& c) {
    return is_own_process(static_cast<i32>(c.a[0])) ? own_group() : c.a[0] == kParent ? i64{kParent} : -ESRCH;
}
i64 sys_getsid(const Args& c) {
    return is_own_process(static_cast<i32>(c.a[0])) ? own_session() : c.a[0] == kParent ? i64{kParent} : -ESRCH;
}

i64 sys_setpgid(const Args& c) {
    const i32 group = static_cast<i32>(c.a[1]);
    if (group < 0)
        return -EINVAL;
    if (!is_own_process(static_cast<i32>(c.a[0])))
        return -ESRCH;
    if (leads_session)
        return -EPERM;
    if (is_own_process(group))
        leads_group = true;
    else if (static_cast<u32>(group) == kParent)
        leads_group = false;
    else
        return -EPERM;
    return 0;
}

i64 sys_setsid(const Args&) {
    if (leads_group)
        return -EPERM;
    leads_group = leads_session = true;
    return gk_shared_page.pid;
}

} // namespace gk
