#include "tinykvm/linux/synthetic.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/synthetic_text.hpp"

namespace tinykvm {

namespace {

using Kind = SyntheticFiles::Kind;
using Text = std::string (*)(const ProgramFacts&, const SelfFacts&);

struct Row {
    std::string_view path;
    Kind kind;
    Text text;
};

// Each row hides the host's file at its path. Paths beneath /proc/self that are not listed are hidden.
constexpr Row kSyntheticFiles[] = {
    {"/proc/self", Kind::directory, nullptr},
    {"/proc/self/exe", Kind::link, nullptr},
    {"/proc/self/maps", Kind::file, synthetic_text::self_maps},
    {"/proc/self/status", Kind::file, synthetic_text::self_status},
    {"/proc/self/stat", Kind::file, synthetic_text::self_stat},
    {"/proc/self/statm", Kind::file, synthetic_text::self_statm},
    {"/proc/self/cmdline", Kind::file, synthetic_text::self_cmdline},
    {"/proc/self/comm", Kind::file, synthetic_text::self_comm},
    {"/proc/self/limits", Kind::file, synthetic_text::self_limits},
    {"/proc/self/cgroup", Kind::file, synthetic_text::self_cgroup},
    {"/proc/self/mounts", Kind::file, synthetic_text::mounts},
    {"/proc/self/mountinfo", Kind::file, synthetic_text::mountinfo},
    {"/proc/mounts", Kind::file, synthetic_text::mounts},
    {"/proc/filesystems", Kind::file, synthetic_text::filesystems},
    {"/proc/sys/kernel/ostype", Kind::file, synthetic_text::ostype},
    {"/proc/sys/kernel/hostname", Kind::file, synthetic_text::hostname},
    {"/proc/sys/kernel/pid_max", Kind::file, synthetic_text::pid_max},
    {"/proc/sys/kernel/random/uuid", Kind::file, synthetic_text::random_uuid},
    {"/proc/sys/fs/file-max", Kind::file, synthetic_text::file_max},
    {"/proc/sys/vm/max_map_count", Kind::file, synthetic_text::max_map_count},
    {"/proc/sys/net/ipv4/ip_local_port_range", Kind::file, synthetic_text::port_range},
    {"/proc/sys/net/core/rmem_max", Kind::file, synthetic_text::socket_buffer_max},
    {"/proc/sys/net/core/wmem_max", Kind::file, synthetic_text::socket_buffer_max},
    {"/proc/cpuinfo", Kind::file, synthetic_text::cpuinfo},
    {"/proc/meminfo", Kind::file, synthetic_text::meminfo},
    {"/proc/stat", Kind::file, synthetic_text::stat},
    {"/proc/loadavg", Kind::file, synthetic_text::loadavg},
    {"/proc/uptime", Kind::file, synthetic_text::uptime},
    {"/proc/version", Kind::file, synthetic_text::version},
    {"/proc/sys/kernel/osrelease", Kind::file, synthetic_text::osrelease},
    {"/proc/sys/vm/overcommit_memory", Kind::file, synthetic_text::overcommit_memory},
    {"/proc/sys/net/core/somaxconn", Kind::file, synthetic_text::somaxconn},
    // The host's memory and kernel log: hidden whatever the permissions say.
    {"/proc/kcore", Kind::hidden, nullptr},
    {"/proc/kmsg", Kind::hidden, nullptr},
    {"/sys/devices/system/cpu/online", Kind::file, synthetic_text::cpu_list},
    {"/sys/devices/system/cpu/possible", Kind::file, synthetic_text::cpu_list},
    {"/sys/devices/system/cpu/present", Kind::file, synthetic_text::cpu_list},
    {"/sys/fs/cgroup", Kind::hidden, nullptr}, // shows the limits of the VMM
    {"/dev/tty", Kind::no_device, nullptr},
    {"/dev/fd", Kind::hidden, nullptr},
    {"/dev/stdin", Kind::stdio, nullptr},
    {"/dev/stdout", Kind::stdio, nullptr},
    {"/dev/stderr", Kind::stdio, nullptr},
};

const Row* find_row(std::string_view path) {
    const auto* row = std::find_if(std::begin(kSyntheticFiles), std::end(kSyntheticFiles),
                                   [&](const Row& r) { return r.path == path; });
    return row == std::end(kSyntheticFiles) ? nullptr : row;
}

bool may_be_synthetic(std::string_view path) {
    return path.starts_with("/proc") || path.starts_with("/sys") || path.starts_with("/dev");
}

std::string_view first_part_beneath_proc(std::string_view path) {
    constexpr std::string_view kProc = "/proc/";
    if (!path.starts_with(kProc))
        return {};
    path.remove_prefix(kProc.size());
    return path.substr(0, path.find('/'));
}

bool all_digits(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

} // namespace

std::string SyntheticFiles::canonical(std::string_view path, const SelfFacts& self) const {
    const std::string_view part = first_part_beneath_proc(path);
    if (part == "thread-self" || (all_digits(part) && part == std::to_string(self.pid)))
        return "/proc/self" + std::string(path.substr(std::string_view("/proc/").size() + part.size()));
    return std::string(path);
}

Kind SyntheticFiles::kind(std::string_view path) const {
    if (!may_be_synthetic(path))
        return Kind::none;
    if (const Row* row = find_row(path))
        return row->kind;
    const std::string_view part = first_part_beneath_proc(path);
    if (part == "self" || all_digits(part))
        return Kind::hidden;
    // /proc, /sys and /dev themselves are not synthetic: with permission they can be listed.
    if (path == "/proc" || path == "/sys" || path == "/dev")
        return Kind::none;
    for (const Row& row : kSyntheticFiles)
        if (row.kind == Kind::hidden && is_beneath(path, row.path))
            return Kind::hidden;
    return Kind::none;
}

bool SyntheticFiles::leads_to_file(std::string_view path) const {
    return may_be_synthetic(path) &&
           std::any_of(std::begin(kSyntheticFiles), std::end(kSyntheticFiles), [&](const Row& row) {
               return row.kind == Kind::file && row.path != path && is_beneath(row.path, path);
           });
}

std::vector<std::string> SyntheticFiles::file_paths() {
    std::vector<std::string> paths;
    for (const Row& row : kSyntheticFiles)
        if (row.kind == Kind::file)
            paths.emplace_back(row.path);
    return paths;
}

std::string SyntheticFiles::content(std::string_view path, const SelfFacts& self) const {
    const Row* row = find_row(path);
    return row && row->text ? row->text(facts_, self) : std::string();
}

std::string SyntheticFiles::target(std::string_view) const { return facts_.program; }

int SyntheticFiles::stdio_fd(std::string_view path) const {
    return path == "/dev/stdin" ? STDIN_FILENO : path == "/dev/stdout" ? STDOUT_FILENO : STDERR_FILENO;
}

UniqueFd SyntheticFiles::open(std::string_view path, const SelfFacts& self) const {
    const std::string text = content(path, self);
    UniqueFd fd(::memfd_create("synthetic", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
        throw_errno("memfd_create " + std::string(path));
    if (::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
        throw_errno("write " + std::string(path));
    // Machines share it: no one may write to it, not even through a mapping.
    if (::fchmod(fd.get(), 0444) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        throw_errno("seal " + std::string(path));
    return fd;
}

const std::vector<std::string>& SyntheticFiles::free_devices() {
    static const std::vector<std::string> devices{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
    return devices;
}

} // namespace tinykvm
