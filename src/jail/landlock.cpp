#include "src/jail/landlock.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

using tinykvm::UniqueFd;

namespace {

// linux/landlock.h; older systems' headers lack these names.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr unsigned kVersion = 1, kPathBeneath = 1;
struct Ruleset {
    std::uint64_t paths, network, scope;
};
struct [[gnu::packed]] PathRule {
    std::uint64_t allowed;
    std::int32_t folder;
};
constexpr std::uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadFolder = 1 << 3;
constexpr std::uint64_t kAllOfFirst = (1 << 13) - 1, kRefer = 1 << 13, kTruncate = 1 << 14, kDeviceControl = 1 << 15;
constexpr std::uint64_t kMakeCharacterDevice = 1 << 6, kMakeBlockDevice = 1 << 11;
constexpr std::uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kDeviceControl;
constexpr std::uint64_t kConnectTcp = 1 << 1;
constexpr std::uint64_t kAbstractSockets = 1, kSignals = 2;

bool add(int ruleset, const char* path, std::uint64_t allowed) {
    const UniqueFd at(::open(path, O_PATH | O_CLOEXEC));
    if (!at)
        return errno == ENOENT || errno == EACCES; // unreachable anyway
    const PathRule rule{allowed, at.get()};
    return ::syscall(kAddRule, ruleset, kPathBeneath, &rule, 0) == 0;
}

} // namespace

bool restrict(std::span<const Shown> shown, bool connect) {
    const long version = ::syscall(kCreateRuleset, nullptr, 0, kVersion);
    if (version < 1)
        return false;
    std::uint64_t handled = kAllOfFirst;
    if (version >= 2)
        handled |= kRefer;
    if (version >= 3)
        handled |= kTruncate;
    if (version >= 5)
        handled |= kDeviceControl;
    Ruleset wanted{handled, 0, 0};
    if (version >= 4 && !connect)
        wanted.network = kConnectTcp; // no rule allows a port
    if (version >= 6)
        wanted.scope = kSignals | (connect ? 0 : kAbstractSockets);
    const std::size_t size = version >= 6 ? sizeof(wanted) : version >= 4 ? 16 : 8;
    const UniqueFd ruleset(static_cast<int>(::syscall(kCreateRuleset, &wanted, size, 0)));
    if (!ruleset)
        return false;
    for (const Shown& place : shown) {
        std::uint64_t allowed = kReadFile | kReadFolder;
        if (place.write)
            allowed = handled & ~(kExecute | kMakeCharacterDevice | kMakeBlockDevice | kDeviceControl);
        if (!place.folder)
            allowed &= kOfFiles;
        if (!add(ruleset.get(), place.path.c_str(), allowed & handled))
            return false;
    }
    if (!add(ruleset.get(), "/proc", kReadFile | kReadFolder))
        return false;
    return ::syscall(kRestrictSelf, ruleset.get(), 0) == 0;
}

} // namespace kvmserver::jail
