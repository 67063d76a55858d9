// One system call that the guest kernel passed to the host.
//
// A handler gets the call's arguments and a CallContext, and returns a value >= 0 or -errno. It never sees registers or
// the machine. The guest kernel keeps the fd table and the file offsets, so that reset covers them. In place of file
// descriptors it passes *handles*, which are numbers in a HandleTable.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "tinykvm/linux/output_sink.hpp"
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
    // Called at most once per system call, with one line such as: open "/etc/passwd": not permitted;
    // --allow-read=/etc/passwd would allow it
    std::function<void(const std::string&)> explain;
    // This machine's values for /proc/self.
    SelfFacts self = {};
    // Gets what the program writes to stdout and stderr; null: the process's own streams do.
    const OutputSink* output = nullptr;
    // Out: the missing permission, such as "--allow-read=/etc/passwd would allow it", with a guest path.
    std::string lacking = {};
    // Out, if the result is -kOwnPath: the canonical path, for the guest kernel.
    std::string own_path = {};
};

struct CallArgs {
    std::uint32_t nr = 0; // a Linux x86-64 system call number or an abi::Host number, below 0x2000
    std::array<std::uint64_t, 6> arg{};
};

using Handler = std::int64_t (*)(CallContext&, const CallArgs&);

// A row of the table of host-side system calls.
struct CallRow {
    std::uint32_t nr;
    const char* name;
    Handler handler;
    const char* unsupported; // the unsupported parts of the call, "" if there are none
};
// Null if the host does not implement the call: the caller answers ENOSYS and reports the call once.
const CallRow* find_call(std::uint32_t nr);
// The name of any Linux x86-64 system call, for traces; "?" if unknown.
const char* call_name(std::uint32_t nr);

} // namespace tinykvm
