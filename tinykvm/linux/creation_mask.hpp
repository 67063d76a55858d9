// Files that a guest creates get the mode that it asked for, whatever the VMM's own umask is.
#pragma once
#include <sys/types.h>

namespace tinykvm {

// While this object lives, the calling thread's umask removes no bits of `mode`. The first use in a thread separates
// its umask from that of the process (unshare(CLONE_FS)). If a seccomp filter forbids that, the process's umask stays
// in force.
class UnmaskedMode {
public:
    explicit UnmaskedMode(mode_t mode);
    ~UnmaskedMode();
    UnmaskedMode(const UnmaskedMode&) = delete;
    UnmaskedMode& operator=(const UnmaskedMode&) = delete;

private:
    bool cleared_ = false;
};

} // namespace tinykvm
