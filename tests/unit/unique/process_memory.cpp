#include "tests/unit/unique/process_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/base/zero.hpp"

namespace kvmserver::unique {

using namespace tinykvm;

namespace {

std::vector<Area> areas_of(pid_t process) {
    std::vector<Area> areas;
    std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin = 0, end = 0;
        char rights[5] = "";
        int name_at = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %*s %n", &begin, &end, rights, &name_at) != 3 ||
            rights[0] != 'r')
            continue;
        const std::string name = line.substr(static_cast<std::size_t>(name_at));
        if (name.starts_with("[v"))
            continue; // vvar, vsyscall
        const std::uint32_t prot = 1u | (rights[1] == 'w' ? 2u : 0u) | (rights[2] == 'x' ? 4u : 0u);
        if (!areas.empty() && areas.back().end.value == begin && areas.back().prot == prot && areas.back().name == name)
            areas.back().end = GuestVirt(end);
        else
            areas.push_back({GuestVirt(begin), GuestVirt(end), prot, name, {}});
    }
    return areas;
}

} // namespace

ProcessMemory::ProcessMemory(pid_t process) {
    const UniqueFd memory(::open(("/proc/" + std::to_string(process) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
    const UniqueFd present(::open(("/proc/" + std::to_string(process) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
    if (memory.get() < 0 || present.get() < 0)
        throw_errno("open the memory of a process");
    std::vector<Area> areas = areas_of(process);
    std::vector<Written> written;
    for (Area& area : areas) {
        copies_.push_back(Mapping::map(area.end.value - area.begin.value, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, "copy of a process"));
        area.bytes = copies_.back().bytes();
        for (std::uint64_t at = area.begin.value; at < area.end.value; at += kPageSize) {
            std::uint64_t entry = 0;
            (void)!::pread(present.get(), &entry, sizeof(entry), static_cast<off_t>(at / kPageSize * sizeof(entry)));
            if (area.name.empty() && entry >> 62 == 0)
                continue; // never touched
            std::byte* to = copies_.back().data() + (at - area.begin.value);
            if (::pread(memory.get(), to, kPageSize, static_cast<off_t>(at)) != static_cast<ssize_t>(kPageSize))
                continue; // behind the end of a file
            if (!area.writable() || is_zero(std::span<const std::byte>(to, kPageSize)))
                continue;
            if (!written.empty() && written.back().begin >= area.begin &&
                written.back().bytes.data() + written.back().bytes.size() == to)
                written.back().bytes = {written.back().bytes.data(), written.back().bytes.size() + kPageSize};
            else
                written.push_back({GuestVirt(at), {to, kPageSize}});
        }
    }
    view_ = MemoryView(std::move(areas), std::move(written));
}

} // namespace kvmserver::unique
