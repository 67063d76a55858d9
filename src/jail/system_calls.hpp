// seccomp(2): which system calls a process that runs machines may make.
#pragma once
#include <linux/filter.h>

#include <cstdint>
#include <vector>

namespace kvmserver::jail {

// Everything that such a process does once it is in its jail.
// What nobody needs ends the process (SIGSYS); what is unknown is answered as by an older kernel (ENOSYS), for the C
// library tries some.
class SystemCalls {
public:
    // Works the filter out, which takes a millisecond. `alone`: this process sees no other; else calls that reach
    // others by number are allowed for its own number only.
    explicit SystemCalls(bool alone);
    // From now on, for this thread and those that it makes; what others have taken away stays away. False, with errno:
    // there is no seccomp. Needs no_new_privs.
    bool restrict() const;

private:
    std::vector<sock_filter> program_; // none: it could not be made
};

} // namespace kvmserver::jail
