// seccomp(2): which system calls a process that runs machines may make.
#pragma once
#include <linux/filter.h>

#include <cstdint>
#include <vector>

namespace kvmserver::jail {

enum class Thread : std::uint8_t {
    process, // everything that such a process does once it is in its jail
    machine, // runs a machine and answers its host calls: makes no threads and takes no descriptors from others
};

// What nobody needs ends the process (SIGSYS); what is unknown is answered as by an older kernel (ENOSYS), for the C library tries some.
class SystemCalls {
public:
    // Works the filter out, which takes a millisecond.
    explicit SystemCalls(Thread thread);
    // From now on, for this thread and those that it makes; what others have taken away stays away. False, with errno: there is no seccomp.
    // Needs no_new_privs.
    bool restrict() const;

private:
    std::vector<sock_filter> program_; // none: it could not be made
};

} // namespace kvmserver::jail
