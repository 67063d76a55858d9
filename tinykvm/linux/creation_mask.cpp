#include "tinykvm/linux/creation_mask.hpp"

#include <sched.h>
#include <sys/stat.h>

namespace tinykvm {
namespace {

struct ThreadMask {
    bool own = ::unshare(CLONE_FS) == 0;
    mode_t mask = 0;
    ThreadMask() {
        if (own) {
            mask = ::umask(0);
            ::umask(mask);
        }
    }
};

ThreadMask& thread_mask() {
    thread_local ThreadMask mask;
    return mask;
}

} // namespace

UnmaskedMode::UnmaskedMode(mode_t mode) {
    if (mode == 0 || (mode & thread_mask().mask) == 0)
        return;
    ::umask(0);
    cleared_ = true;
}

UnmaskedMode::~UnmaskedMode() {
    if (cleared_)
        ::umask(thread_mask().mask);
}

} // namespace tinykvm
