#include "src/jail/landlock.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

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

constexpr long kScopes = 6; // the version that has them

// -1: the kernel has no Landlock.
long supported_version() { return ::syscall(kCreateRuleset, nullptr, 0, kVersion); }

std::size_t size_of_ruleset(long version) { return version >= kScopes ? sizeof(Ruleset) : version >= 4 ? 16 : 8; }

UniqueFd make_ruleset(const Ruleset& wanted, long version) {
    return UniqueFd(static_cast<int>(::syscall(kCreateRuleset, &wanted, size_of_ruleset(version), 0)));
}

} // namespace

bool PathRules::can_part_abstract_sockets() { return supported_version() >= kScopes; }

std::optional<PathRules> PathRules::make() {
    const long version = supported_version();
    if (version < 1)
        return std::nullopt;
    std::uint64_t handled = kAllOfFirst;
    if (version >= 2)
        handled |= kRefer;
    if (version >= 3)
        handled |= kTruncate;
    if (version >= 5)
        handled |= kDeviceControl;
    UniqueFd rules = make_ruleset({handled, 0, version >= kScopes ? kSignals : 0}, version);
    if (!rules)
        return std::nullopt;
    return PathRules(std::move(rules), version, handled);
}

bool PathRules::add(const Shown& place, int at) {
    std::uint64_t allowed = kReadFile | kReadFolder;
    if (place.write)
        allowed = handled_ & ~(kExecute | kMakeCharacterDevice | kMakeBlockDevice | kDeviceControl);
    if (!place.folder)
        allowed &= kOfFiles;
    const PathRule rule{allowed & handled_, at};
    return ::syscall(kAddRule, rules_.get(), kPathBeneath, &rule, 0) == 0;
}

bool PathRules::add(const Shown& place) {
    const UniqueFd at(::open(place.path.c_str(), O_PATH | O_CLOEXEC));
    if (!at)
        return errno == ENOENT || errno == EACCES; // unreachable anyway
    return add(place, at.get());
}

bool PathRules::restrict(bool connect) const {
    if (::syscall(kRestrictSelf, rules_.get(), 0) != 0)
        return false;
    if (connect || version_ < 4)
        return true;
    // A layer of its own, so that rules of paths can be made before this is known. No rule allows a port.
    const UniqueFd network = make_ruleset({0, kConnectTcp, version_ >= kScopes ? kAbstractSockets : 0}, version_);
    return network && ::syscall(kRestrictSelf, network.get(), 0) == 0;
}

} // namespace kvmserver::jail
