#include "src/jail/shared_network.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>

#include "src/jail/landlock.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::jail {

using tinykvm::UniqueFd;

namespace {

// ip-sysctl(7): without it, addresses can be bound only where an interface has them. False: that failed.
bool bind_any_address() {
    const auto switch_on = [](const char* path) {
        const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
        return file ? ::write(file.get(), "1", 1) == 1 : errno == ENOENT; // a kernel without IPv6
    };
    return switch_on("/proc/sys/net/ipv4/ip_nonlocal_bind") && switch_on("/proc/sys/net/ipv6/ip_nonlocal_bind");
}

} // namespace

UniqueFd enter_shared_network() {
    if (!PathRules::can_part_abstract_sockets())
        return {};
    UniqueFd before(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!before || ::unshare(CLONE_NEWNET) < 0)
        return {};
    if (bind_any_address())
        return before;
    if (::setns(before.get(), CLONE_NEWNET) < 0)
        tinykvm::throw_errno("setns to the host's network");
    return {};
}

} // namespace kvmserver::jail
