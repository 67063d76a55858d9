// The mode of what a guest creates: what it asks for, whatever the mask of the VMM's own process is.
#pragma once
#include <sys/types.h>

namespace tinykvm {

// While it lives, this thread's file mode creation mask takes nothing from `mode`. The first that needs it gives its
// thread a mask of its own (unshare(CLONE_FS)); where a seccomp filter forbids that, the process's mask stays in
// force.
class ModeAsAsked {
public:
    explicit ModeAsAsked(mode_t mode);
    ~ModeAsAsked();
    ModeAsAsked(const ModeAsAsked&) = delete;
    ModeAsAsked& operator=(const ModeAsAsked&) = delete;

private:
    bool cleared_ = false;
};

} // namespace tinykvm
