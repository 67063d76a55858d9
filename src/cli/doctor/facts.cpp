#include "src/cli/doctor/facts.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace kvmserver::cli::doctor {
namespace {

namespace fs = std::filesystem;

std::string first_word(const char* file) {
    std::ifstream stream(file);
    std::string word;
    stream >> word;
    return word;
}

std::uint64_t number_in(const char* file) { return std::strtoull(first_word(file).c_str(), nullptr, 10); }

bool exists(const char* path) {
    std::error_code error;
    return fs::exists(path, error);
}

void look_at_cpu(Facts& facts) {
    std::ifstream stream("/proc/cpuinfo");
    for (std::string line; std::getline(stream, line);) {
        if (!line.starts_with("flags"))
            continue;
        std::istringstream flags(line);
        for (std::string flag; flags >> flag;) {
            if (flag == "vmx")
                facts.cpu = Facts::Cpu::intel;
            if (flag == "svm")
                facts.cpu = Facts::Cpu::amd;
            facts.hypervisor |= flag == "hypervisor";
        }
        break;
    }
    facts.module_loaded = exists("/sys/module/kvm");
    facts.container = exists("/.dockerenv") || exists("/run/.containerenv") || std::getenv("container");
    const std::string nested = first_word(facts.cpu == Facts::Cpu::amd ? "/sys/module/kvm_amd/parameters/nested"
                                                                       : "/sys/module/kvm_intel/parameters/nested");
    facts.nested_off = nested == "N" || nested == "0";
    facts.smt = first_word("/sys/devices/system/cpu/smt/active") == "1";
}

void look_at_user(Facts& facts) {
    facts.root = ::geteuid() == 0;
    const char* const caller = facts.root ? std::getenv("SUDO_USER") : nullptr;
    facts.group_exists = ::getgrnam("kvm") != nullptr;
    const passwd* const entry = caller ? ::getpwnam(caller) : ::getpwuid(::geteuid());
    if (!entry)
        return;
    facts.user = entry->pw_name;
    const gid_t primary = entry->pw_gid;
    const group* const kvm = ::getgrnam("kvm");
    if (!kvm)
        return;
    facts.in_group = primary == kvm->gr_gid;
    for (char** member = kvm->gr_mem; *member; ++member)
        facts.in_group |= facts.user == *member;
    std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
    const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
    groups.resize(static_cast<std::size_t>(std::max(0, count)));
    facts.session_in_group = ::getegid() == kvm->gr_gid || std::ranges::find(groups, kvm->gr_gid) != groups.end();
}

void look_at_device(Facts& facts) {
    struct stat status {};
    if (::stat(facts.device.c_str(), &status) < 0)
        return;
    facts.present = true;
    // The effective rights, which open(2) checks.
    facts.permitted = ::faccessat(AT_FDCWD, facts.device.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
    facts.refusal = facts.permitted ? 0 : errno;
    const group* const owner = ::getgrgid(status.st_gid);
    facts.owner_group = owner ? owner->gr_name : std::to_string(status.st_gid);
    facts.group_may = (status.st_mode & 0060) == 0060;
}

void look_at_limits(Facts& facts) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        facts.open_files = limit.rlim_cur;
        facts.max_open_files = limit.rlim_max;
    }
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        facts.address_space = limit.rlim_cur;
    facts.overcommit = static_cast<int>(number_in("/proc/sys/vm/overcommit_memory"));
    facts.watches = number_in("/proc/sys/fs/inotify/max_user_watches");
}

void look_at_store(Facts& facts) {
    if (facts.store.empty())
        return;
    fs::path at = facts.store;
    facts.store_present = exists(at.c_str());
    while (!exists(at.c_str()) && at.has_relative_path())
        at = at.parent_path();
    facts.store_permitted = ::faccessat(AT_FDCWD, at.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) == 0;
    std::error_code error;
    const fs::space_info space = fs::space(at, error);
    facts.store_free = error ? 0 : space.available;
}

} // namespace

Facts gather(const std::string& device, const std::string& store) {
    Facts facts;
    facts.device = device;
    facts.store = store;
    look_at_device(facts);
    look_at_cpu(facts);
    look_at_user(facts);
    look_at_limits(facts);
    look_at_store(facts);
    return facts;
}

} // namespace kvmserver::cli::doctor
