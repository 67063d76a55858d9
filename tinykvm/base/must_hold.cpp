#include "tinykvm/base/must_hold.hpp"

#include <cstdio>
#include <cstdlib>

namespace tinykvm {

void broken_invariant(const char* file, int line, const char* function) {
    std::fprintf(stderr, "kvmserver: a bug of kvmserver: what must hold at %s:%d (%s) does not; please report it\n",
                 file, line, function);
    std::abort();
}

} // namespace tinykvm
