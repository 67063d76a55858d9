// Capabilities (kernel/capability.c, security/commoncap.c). The calls in ids.cpp, owners.cpp, own_access.cpp and
// message_queue.cpp check them.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

enum : u32 { kVersion1 = 0x19980330, kVersion2 = 0x20071026, kVersion3 = 0x20080522 };
struct Header {
    u32 version;
    i32 pid;
};
struct Sets {
    u32 effective, permitted, inheritable;
};

// Reads a caller's header. Returns its number of Sets or -EFAULT; 0 for an unknown version, after writing the newest
// version to the header.
i64 sets_of(Header& header, u64 at) {
    if (!get_user(header, at))
        return -EFAULT;
    switch (header.version) {
    case kVersion1: return 1;
    case kVersion2:
    case kVersion3: return 2;
    default: break;
    }
    header.version = kVersion3;
    return put_user(at, header.version) ? 0 : -EFAULT;
}

bool subset(u64 of, u64 all) { return (of & ~all) == 0; }

} // namespace

i64 sys_capget(const Args& c) {
    Header header;
    const i64 sets = sets_of(header, c.a[0]);
    if (sets < 0)
        return sets;
    const u64 count = static_cast<u64>(sets);
    if (count == 0)
        return c.a[1] ? -EINVAL : 0;
    if (!c.a[1])
        return 0;
    if (header.pid < 0)
        return -EINVAL;
    const Thread* of = header.pid == 0 ? current : thread_of(header.pid);
    if (!of)
        return -ESRCH;
    const Credentials& k = of->ids;
    const Sets out[2] = {
        {static_cast<u32>(k.effective), static_cast<u32>(k.permitted), static_cast<u32>(k.inheritable)},
        {static_cast<u32>(k.effective >> 32), static_cast<u32>(k.permitted >> 32),
         static_cast<u32>(k.inheritable >> 32)}};
    return copy_to_user(c.a[1], out, count * sizeof(Sets)) ? 0 : -EFAULT;
}

i64 sys_capset(const Args& c) {
    Header header;
    const i64 sets = sets_of(header, c.a[0]);
    if (sets < 0)
        return sets;
    const u64 count = static_cast<u64>(sets);
    if (count == 0)
        return -EINVAL;
    if (header.pid != 0 && thread_of(header.pid) != current)
        return -EPERM;
    Sets in[2] = {};
    if (!copy_from_user(in, c.a[1], count * sizeof(Sets)))
        return -EFAULT;
    constexpr u64 kAll = (u64{1} << (kLastCapability + 1)) - 1;
    const u64 effective = (in[0].effective | u64{in[1].effective} << 32) & kAll;
    const u64 permitted = (in[0].permitted | u64{in[1].permitted} << 32) & kAll;
    const u64 inheritable = (in[0].inheritable | u64{in[1].inheritable} << 32) & kAll;
    Credentials& k = current->ids;
    if ((!k.may(kCapSetpcap) && !subset(inheritable, k.inheritable | k.permitted)) ||
        !subset(inheritable, k.inheritable | k.bounding) || !subset(permitted, k.permitted) ||
        !subset(effective, permitted))
        return -EPERM;
    k.effective = effective;
    k.permitted = permitted;
    k.inheritable = inheritable;
    k.ambient &= permitted & inheritable;
    return 0;
}

i64 drop_bounding(u64 number) { // PR_CAPBSET_DROP
    if (!current->ids.may(kCapSetpcap))
        return -EPERM;
    if (number > kLastCapability)
        return -EINVAL;
    current->ids.bounding &= ~capability(static_cast<u32>(number));
    return 0;
}

i64 change_ambient(u64 what, u64 number) { // PR_CAP_AMBIENT
    enum : u64 { kIsSet = 1, kRaise, kLower, kClearAll };
    Credentials& k = current->ids;
    if (what == kClearAll) {
        if (number)
            return -EINVAL;
        k.ambient = 0;
        return 0;
    }
    if (number > kLastCapability || what < kIsSet || what > kLower)
        return -EINVAL;
    const u64 one = capability(static_cast<u32>(number));
    if (what == kIsSet)
        return (k.ambient & one) != 0;
    if (what == kRaise && (!(k.permitted & k.inheritable & one) || (k.secure_bits & kNoAmbientRaise)))
        return -EPERM;
    k.ambient = what == kRaise ? k.ambient | one : k.ambient & ~one;
    return 0;
}

i64 set_secure_bits(u64 wanted) { // PR_SET_SECUREBITS
    // linux/securebits.h: the lock of each bit is the next higher bit
    constexpr u64 kBits = 0x55, kLocks = 0xaa, kKnown = kBits | kLocks;
    const u64 now = current->ids.secure_bits;
    const u64 locked = (now & kLocks) >> 1;
    if ((locked & (now ^ wanted)) || (now & kLocks & ~wanted) || (wanted & ~kKnown) || !current->ids.may(kCapSetpcap))
        return -EPERM;
    current->ids.secure_bits = static_cast<u32>(wanted);
    return 0;
}

i64 keep_capabilities(u64 keep) { // PR_SET_KEEPCAPS
    u32& bits = current->ids.secure_bits;
    if (keep > 1)
        return -EINVAL;
    if (bits & kKeepCapsLocked)
        return -EPERM;
    bits = keep ? bits | kKeepCaps : bits & ~u32{kKeepCaps};
    return 0;
}

} // namespace gk
