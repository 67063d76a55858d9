// Whether two descriptors are of one file.
#pragma once
#include <sys/stat.h>

namespace tinykvm {

// False also if either is no open descriptor.
inline bool same_file(int a, int b) {
    struct stat one, other;
    return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

} // namespace tinykvm
