// A thread's user and group ids and capabilities, kept in the guest kernel with Linux's rules. They mean nothing to the
// host: it acts with the ids of whoever runs the machine.
#pragma once
#include <cstdint>

namespace gk {

// Supplementary groups, sorted. Reference counted and shared by threads.
struct Groups {
    std::uint32_t refs;
    std::uint32_t count;
    std::uint32_t ids[];
};

// linux/capability.h: the capabilities that mean something in a machine. Root has them all.
enum Capability : std::uint32_t {
    kCapChown = 0,
    kCapDacOverride = 1,
    kCapFowner = 3,
    kCapFsetid = 4,
    kCapKill = 5,
    kCapSetgid = 6,
    kCapSetuid = 7,
    kCapSetpcap = 8,
    kCapNetBindService = 10,
    kLastCapability = 40,
};
constexpr std::uint64_t capability(std::uint32_t number) { return std::uint64_t{1} << number; }
inline constexpr std::uint64_t kOfferedCapabilities =
    capability(kCapChown) | capability(kCapDacOverride) | capability(kCapFowner) | capability(kCapFsetid) |
    capability(kCapKill) | capability(kCapSetgid) | capability(kCapSetuid) | capability(kCapSetpcap) |
    capability(kCapNetBindService);
// Capabilities that concern files (linux/capability.h, CAP_FS_MASK).
inline constexpr std::uint64_t kFileCapabilities = 0x1f | capability(27) | capability(9) | capability(32);

// linux/securebits.h
enum SecureBit : std::uint32_t {
    kNoSetuidFixup = 1u << 2,
    kKeepCaps = 1u << 4,
    kKeepCapsLocked = 1u << 5,
    kNoAmbientRaise = 1u << 6
};

struct Ids {
    std::uint32_t real, effective, saved, file;
};

struct Credentials {
    Ids user{}, group{};
    Groups* groups = nullptr; // null: none
    std::uint64_t permitted = 0, effective = 0, inheritable = 0, bounding = kOfferedCapabilities, ambient = 0;
    std::uint32_t secure_bits = 0;
    bool no_new_privileges = false;

    bool may(Capability which) const { return (effective & capability(which)) != 0; }
    bool in_group(std::uint32_t id) const; // the file system group or a supplementary group
};

struct Thread;
void first_credentials(Thread*); // for the first thread of a new machine
void inherit_credentials(Thread* to, const Thread* from);
void drop_credentials(Thread*); // releases its groups

} // namespace gk
