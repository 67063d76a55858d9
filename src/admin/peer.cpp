#include "src/admin/peer.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string>

namespace kvmserver::admin {
namespace {

struct Closer {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

// Whether the process has no KVM descriptor open (proc(5), /proc/PID/fd). A process that cannot be inspected, such as a
// function process, is not trusted.
bool runs_no_machine(pid_t pid) {
    const std::unique_ptr<DIR, Closer> folder(::opendir(fmt::format("/proc/{}/fd", pid).c_str()));
    if (!folder)
        return false;
    while (const dirent* const entry = ::readdir(folder.get())) {
        char target[64];
        const ssize_t bytes = ::readlinkat(::dirfd(folder.get()), entry->d_name, target, sizeof(target));
        if (bytes > 0 &&
            std::string_view(target, static_cast<std::size_t>(bytes)).starts_with("anon_inode:kvm-v")) // -vm, -vcpu:0
            return false;
    }
    return true;
}

} // namespace

std::optional<uid_t> trusted_user(std::string_view client) {
    constexpr std::string_view prefix = "unix:";
    uid_t uid = 0;
    pid_t pid = 0;
    if (!client.starts_with(prefix))
        return std::nullopt;
    const char* const end = client.data() + client.size();
    const auto user = std::from_chars(client.data() + prefix.size(), end, uid);
    if (user.ec != std::errc{} || user.ptr == end || *user.ptr != ':')
        return std::nullopt;
    const auto process = std::from_chars(user.ptr + 1, end, pid);
    if (process.ec != std::errc{} || process.ptr != end || pid <= 0)
        return std::nullopt;
    // A daemon that is not root's cannot inspect root's processes and need not: root can do everything anyway.
    if (uid == 0 && ::geteuid() != 0)
        return uid;
    return runs_no_machine(pid) ? std::optional(uid) : std::nullopt;
}

} // namespace kvmserver::admin
