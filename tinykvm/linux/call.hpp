// One system call that the guest kernel passed to the host: what a handler sees of the machine.
//
// A handler gets the call's arguments and this context and returns a value >= 0 or -errno; it never sees
// registers or the machine. File descriptors are not the guest's numbers: the guest kernel keeps the fd
// table and the file offsets (so that reset covers them) and passes *handles*, the numbers of HandleTable.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "tinykvm/linux/permissions.hpp"
#include "tinykvm/linux/program_facts.hpp"
#include "tinykvm/memory/guest_memory.hpp"

namespace tinykvm {

class HandleTable; // linux/handles.hpp
class Policy;      // linux/policy.hpp

struct CallContext {
    GuestMemory& memory;
    HandleTable& handles;
    const Policy& policy;
    // Called at most once a call with one line such as: open "/etc/passwd": not permitted; --allow-read=/etc/passwd
    // would allow it
    std::function<void(const std::string&)> explain;
    // What /proc/self tells of this machine.
    SelfFacts self = {};
    // The permission that was missing: "--allow-read=/etc/passwd would allow it". The path in it is the guest's.
    std::string lacking = {};
    // With -kOwnPath as the result: the canonical path, for the guest kernel.
    std::string own_path = {};
};

struct CallArgs {
    std::uint32_t nr = 0; // a Linux x86-64 system call number, or one of abi::Host below 0x2000
    std::array<std::uint64_t, 6> arg{};
};

using Handler = std::int64_t (*)(CallContext&, const CallArgs&);

// The row of a host-side system call. Null when there is none (the caller answers ENOSYS and names it once).
struct CallRow {
    std::uint32_t nr;
    const char* name;
    Handler handler;
    const char* unsupported; // what of the call is not supported, "" when all is
};
const CallRow* find_call(std::uint32_t nr);
// The name of any Linux x86-64 system call number, for traces; "?" when unknown.
const char* call_name(std::uint32_t nr);

} // namespace tinykvm
