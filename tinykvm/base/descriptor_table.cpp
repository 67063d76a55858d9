#include "tinykvm/base/descriptor_table.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>

#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

void reserve_descriptors(int count) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    const auto highest = std::min<rlim_t>(static_cast<rlim_t>(count), limit.rlim_cur) - 1;
    const UniqueFd any(::eventfd(0, EFD_CLOEXEC));
    const UniqueFd last(::fcntl(any.get(), F_DUPFD_CLOEXEC, static_cast<int>(highest))); // the table never shrinks
}

} // namespace tinykvm
