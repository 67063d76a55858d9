// The contents of the synthetic files, one function each. Formats: proc(5).
#pragma once
#include <string>

#include "tinykvm/linux/program_facts.hpp"

namespace tinykvm::synthetic_text {

std::string self_maps(const ProgramFacts&, const SelfFacts&);
std::string self_status(const ProgramFacts&, const SelfFacts&);
std::string self_stat(const ProgramFacts&, const SelfFacts&);
std::string self_statm(const ProgramFacts&, const SelfFacts&);
std::string self_cmdline(const ProgramFacts&, const SelfFacts&);
std::string self_comm(const ProgramFacts&, const SelfFacts&);
std::string cpuinfo(const ProgramFacts&, const SelfFacts&);
std::string meminfo(const ProgramFacts&, const SelfFacts&);
std::string stat(const ProgramFacts&, const SelfFacts&);
std::string loadavg(const ProgramFacts&, const SelfFacts&);
std::string uptime(const ProgramFacts&, const SelfFacts&);
std::string version(const ProgramFacts&, const SelfFacts&);
std::string osrelease(const ProgramFacts&, const SelfFacts&);
std::string overcommit_memory(const ProgramFacts&, const SelfFacts&);
std::string somaxconn(const ProgramFacts&, const SelfFacts&);
std::string self_limits(const ProgramFacts&, const SelfFacts&);
std::string self_cgroup(const ProgramFacts&, const SelfFacts&);
std::string mounts(const ProgramFacts&, const SelfFacts&);
std::string mountinfo(const ProgramFacts&, const SelfFacts&);
std::string filesystems(const ProgramFacts&, const SelfFacts&);
std::string ostype(const ProgramFacts&, const SelfFacts&);
std::string hostname(const ProgramFacts&, const SelfFacts&);
std::string pid_max(const ProgramFacts&, const SelfFacts&);
std::string random_uuid(const ProgramFacts&, const SelfFacts&);
std::string file_max(const ProgramFacts&, const SelfFacts&);
std::string max_map_count(const ProgramFacts&, const SelfFacts&);
std::string port_range(const ProgramFacts&, const SelfFacts&);
std::string socket_buffer_max(const ProgramFacts&, const SelfFacts&);
std::string cpu_list(const ProgramFacts&, const SelfFacts&);

} // namespace tinykvm::synthetic_text
