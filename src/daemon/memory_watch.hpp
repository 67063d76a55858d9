// Whether the memory that functions may use runs short.
//
// Two things tell: how much is available, of the host (MemAvailable of /proc/meminfo) and of each control group with a
// limit that the daemon is in; and that tasks wait for memory (PSI: Documentation/accounting/psi.rst of Linux).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

struct MemoryPlaces {
    std::filesystem::path proc = "/proc", groups = "/sys/fs/cgroup";
};

class MemoryWatch {
public:
    // `reserve`: bytes that shall stay available; nothing: a twentieth of the memory, kMostReserve at most; 0: memory
    // is never short.
    explicit MemoryWatch(std::optional<std::uint64_t> reserve, MemoryPlaces places = {});

    std::uint64_t reserve() const { return reserve_; }
    // Bytes; nothing if that is not known.
    std::optional<std::uint64_t> available() const;
    // EPOLLPRI once for each two seconds in which tasks waited for memory for a tenth of a second. -1: this host does
    // not tell, or memory is never short.
    int stall_fd() const { return stalls_.get(); }

    static constexpr std::uint64_t kMostReserve = std::uint64_t{512} << 20;

private:
    std::optional<std::uint64_t> total() const;

    const MemoryPlaces places_;
    std::vector<std::filesystem::path> groups_; // those with a limit
    std::uint64_t reserve_ = 0;
    tinykvm::UniqueFd stalls_;
};

} // namespace kvmserver::daemon
