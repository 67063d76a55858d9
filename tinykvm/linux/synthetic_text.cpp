#include "tinykvm/linux/synthetic_text.hpp"

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iterator>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/path_text.hpp"

namespace tinykvm::synthetic_text {

namespace {

constexpr std::uint64_t kKib = 1024;

// TASK_COMM_LEN is 16 with the NUL.
std::string name_of(const ProgramFacts& facts) { return split_last(facts.program).second.substr(0, 15); }

double seconds_up() {
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct CpuModel {
    std::string vendor = "unknown", name = "unknown";
    unsigned family = 0, model = 0, stepping = 0;
};

// The values of the CPUID instruction, which the guest can also read itself.
CpuModel cpu_model() {
    CpuModel cpu;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        char vendor[13] = "";
        std::memcpy(vendor, &b, 4);
        std::memcpy(vendor + 4, &d, 4);
        std::memcpy(vendor + 8, &c, 4);
        cpu.vendor = vendor;
    }
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        // AMD64 Architecture Programmer's Manual 3, Fn0000_0001_EAX
        cpu.stepping = a & 0xf;
        cpu.model = ((a >> 4) & 0xf) | ((a >> 12) & 0xf0);
        cpu.family = (a >> 8) & 0xf;
        if (cpu.family == 0xf)
            cpu.family += (a >> 20) & 0xff;
    }
    char name[49] = "";
    for (unsigned leaf = 0; leaf < 3; ++leaf) {
        unsigned words[4];
        if (!__get_cpuid(0x80000002 + leaf, &words[0], &words[1], &words[2], &words[3]))
            return cpu;
        std::memcpy(name + leaf * sizeof words, words, sizeof words);
    }
    cpu.name = name;
    return cpu;
}

std::uint32_t parent_of(const SelfNumbers& self) { return self.parent != 0 ? self.parent : abi::kParentPid; }

SelfNumbers numbers_of(const SelfFacts& self) { return self.numbers ? self.numbers() : SelfNumbers{}; }

} // namespace

std::string self_maps(const ProgramFacts&, const SelfFacts& self) { return self.maps ? self.maps() : std::string(); }

std::string self_status(const ProgramFacts& facts, const SelfFacts& self) {
    const SelfNumbers n = numbers_of(self);
    const abi::SelfState& s = n.state;
    std::string groups;
    for (std::uint32_t i = 0; i < std::min<std::size_t>(s.group_count, std::size(s.groups)); ++i)
        groups += fmt::format("{} ", s.groups[i]);
    const auto ids = [](const std::uint32_t(&of)[4]) {
        return fmt::format("{}\t{}\t{}\t{}", of[0], of[1], of[2], of[3]);
    };
    return fmt::format("Name:\t{0}\nUmask:\t{1:04o}\nState:\tR (running)\nTgid:\t{2}\nNgid:\t0\nPid:\t{2}\nPPid:\t{6}\n"
                       "TracerPid:\t0\nUid:\t{3}\nGid:\t{4}\nFDSize:\t64\nGroups:\t{5}\n",
                       name_of(facts), s.umask & 0777, self.pid, ids(s.uid), ids(s.gid), groups, parent_of(n)) +
           fmt::format("VmPeak:\t{0:8} kB\nVmSize:\t{0:8} kB\nVmHWM:\t{1:8} kB\nVmRSS:\t{2:8} kB\nVmSwap:\t{3:8} "
                       "kB\nThreads:\t{4}\n",
                       n.mapped_bytes / kKib, n.peak_bytes / kKib, n.resident_bytes / kKib, 0, s.threads) +
           fmt::format("SigPnd:\t{:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{:016x}\nSigIgn:\t{:016x}\nSigCgt:\t{:016x}\n",
                       s.pending, s.shared_pending, s.blocked, s.ignored, s.caught) +
           fmt::format("CapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}\n",
                       s.inheritable, s.permitted, s.effective, s.bounding, s.ambient) +
           fmt::format("NoNewPrivs:\t{}\nSeccomp:\t0\nCpus_allowed_list:\t{}", s.no_new_privileges,
                       cpu_list(facts, self));
}

std::string self_stat(const ProgramFacts& facts, const SelfFacts& self) {
    constexpr std::uint64_t kTickNs = 10'000'000; // 1 / sysconf(_SC_CLK_TCK)
    const SelfNumbers n = numbers_of(self);
    // pid (comm) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime
    // priority nice num_threads itrealvalue starttime vsize rss rsslim and 27 more
    std::string text = fmt::format(
        "{0} ({1}) R {7} {8} {9} 0 -1 0 0 0 0 0 {5} 0 0 0 20 0 {6} 0 0 {2} {3} {4}", self.pid, name_of(facts),
        n.mapped_bytes, n.resident_bytes / kPageSize, ~0ull, n.state.cpu_ns / kTickNs, n.state.threads, parent_of(n),
        n.state.leads_group ? self.pid : abi::kParentPid, n.state.leads_session ? self.pid : abi::kParentPid);
    for (int field = 26; field <= 52; ++field)
        text += " 0";
    return text + "\n";
}

std::string self_statm(const ProgramFacts&, const SelfFacts& self) {
    const SelfNumbers n = numbers_of(self);
    return fmt::format("{0} {1} 0 0 0 {0} 0\n", n.mapped_bytes / kPageSize, n.resident_bytes / kPageSize);
}

std::string self_cmdline(const ProgramFacts& facts, const SelfFacts&) {
    std::string text;
    for (const std::string& argument : facts.arguments)
        text.append(argument).push_back('\0');
    return text;
}

std::string self_comm(const ProgramFacts& facts, const SelfFacts&) { return name_of(facts) + "\n"; }

std::string cpuinfo(const ProgramFacts& facts, const SelfFacts&) {
    const CpuModel cpu = cpu_model();
    std::string text;
    for (unsigned n = 0; n < facts.cpus; ++n)
        text += fmt::format("processor\t: {0}\nvendor_id\t: {1}\ncpu family\t: {2}\nmodel\t\t: {3}\nmodel name\t: {4}\n"
                            "stepping\t: {5}\ncpu MHz\t\t: 2000.000\nphysical id\t: 0\nsiblings\t: {6}\n"
                            "core id\t\t: {0}\ncpu cores\t: {6}\nfpu\t\t: yes\nwp\t\t: yes\n\n",
                            n, cpu.vendor, cpu.family, cpu.model, cpu.name, cpu.stepping, facts.cpus);
    return text;
}

std::string meminfo(const ProgramFacts& facts, const SelfFacts&) {
    const std::uint64_t total = facts.memory_bytes / kKib;
    std::string text;
    const auto line = [&](const char* name, std::uint64_t kib) {
        text += fmt::format("{:<16}{:>8} kB\n", std::string(name) + ":", kib);
    };
    line("MemTotal", total);
    line("MemFree", total);
    line("MemAvailable", total);
    for (const char* none : {"Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Shmem"})
        line(none, 0);
    line("Hugepagesize", 2048);
    return text;
}

std::string stat(const ProgramFacts& facts, const SelfFacts&) {
    std::string text = "cpu  0 0 0 0 0 0 0 0 0 0\n";
    for (unsigned n = 0; n < facts.cpus; ++n)
        text += fmt::format("cpu{} 0 0 0 0 0 0 0 0 0 0\n", n);
    const auto booted = static_cast<std::int64_t>(std::time(nullptr)) - static_cast<std::int64_t>(seconds_up());
    return text + fmt::format("intr 0\nctxt 0\nbtime {}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n", booted);
}

std::string loadavg(const ProgramFacts&, const SelfFacts& self) {
    return fmt::format("0.00 0.00 0.00 1/1 {}\n", self.pid);
}

std::string uptime(const ProgramFacts&, const SelfFacts&) { return fmt::format("{:.2f} 0.00\n", seconds_up()); }

std::string version(const ProgramFacts& facts, const SelfFacts&) {
    return fmt::format("Linux version {} (kvmserver) #1 SMP\n", facts.kernel_release);
}

std::string osrelease(const ProgramFacts& facts, const SelfFacts&) { return facts.kernel_release + "\n"; }

std::string overcommit_memory(const ProgramFacts&, const SelfFacts&) { return "1\n"; }

std::string somaxconn(const ProgramFacts&, const SelfFacts&) { return "4096\n"; }

std::string self_limits(const ProgramFacts&, const SelfFacts&) {
    std::string text = fmt::format("{:<26}{:<21}{:<21}{:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    const auto line = [&](const char* name, const char* soft, const char* hard, const char* units) {
        text += fmt::format("{:<26}{:<21}{:<21}{:<10}\n", name, soft, hard, units);
    };
    line("Max cpu time", "unlimited", "unlimited", "seconds");
    line("Max file size", "unlimited", "unlimited", "bytes");
    line("Max data size", "unlimited", "unlimited", "bytes");
    line("Max stack size", "8388608", "unlimited", "bytes");
    line("Max core file size", "0", "0", "bytes");
    line("Max resident set", "unlimited", "unlimited", "bytes");
    line("Max processes", "1024", "1024", "processes");
    line("Max locked memory", "unlimited", "unlimited", "bytes");
    line("Max address space", "unlimited", "unlimited", "bytes");
    return text;
}

std::string self_cgroup(const ProgramFacts&, const SelfFacts&) { return "0::/\n"; }

std::string mounts(const ProgramFacts&, const SelfFacts&) {
    return "rootfs / rootfs rw 0 0\nproc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"
           "sysfs /sys sysfs ro,nosuid,nodev,noexec,relatime 0 0\ntmpfs /tmp tmpfs rw,nosuid,nodev,relatime 0 0\n"
           "tmpfs /dev/shm tmpfs rw,nosuid,nodev,relatime 0 0\n";
}

std::string mountinfo(const ProgramFacts&, const SelfFacts&) {
    return "1 1 0:1 / / rw - rootfs rootfs rw\n2 1 0:34 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw\n"
           "3 1 0:3 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro\n"
           "4 1 0:32 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw\n5 1 0:33 / /dev/shm rw,nosuid,nodev,relatime - "
           "tmpfs tmpfs rw\n";
}

std::string filesystems(const ProgramFacts&, const SelfFacts&) {
    return "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\n\text4\n";
}

std::string ostype(const ProgramFacts&, const SelfFacts&) { return "Linux\n"; }

std::string hostname(const ProgramFacts&, const SelfFacts&) { return "kvmserver\n"; } // the same as in uname

std::string pid_max(const ProgramFacts&, const SelfFacts&) { return "4194304\n"; }

std::string random_uuid(const ProgramFacts&, const SelfFacts&) {
    std::array<unsigned char, 16> r{};
    if (::getrandom(r.data(), r.size(), 0) != static_cast<ssize_t>(r.size()))
        return "";
    r[6] = static_cast<unsigned char>((r[6] & 0x0f) | 0x40); // version 4
    r[8] = static_cast<unsigned char>((r[8] & 0x3f) | 0x80);
    std::string text;
    for (std::size_t n = 0; n < r.size(); ++n)
        text += fmt::format("{}{:02x}", n == 4 || n == 6 || n == 8 || n == 10 ? "-" : "", r[n]);
    return text + "\n";
}

std::string file_max(const ProgramFacts&, const SelfFacts&) { return "9223372036854775807\n"; }

std::string max_map_count(const ProgramFacts&, const SelfFacts&) { return "65530\n"; }

std::string port_range(const ProgramFacts&, const SelfFacts&) { return "32768\t60999\n"; }

std::string socket_buffer_max(const ProgramFacts&, const SelfFacts&) { return "212992\n"; }

std::string cpu_list(const ProgramFacts& facts, const SelfFacts&) {
    return facts.cpus <= 1 ? "0\n" : fmt::format("0-{}\n", facts.cpus - 1);
}

} // namespace tinykvm::synthetic_text
