// A quiescent machine as plain values: the serialisable twin of Machine (without the bytes of its memory).
//
// Registers are not here: a waiting machine resumes at abi::KernelHeader::wait_resume with nothing in
// registers, and the vector state, FS and GS of its threads are in guest memory (tinykvm/guest).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/permissions.hpp"
#include "tinykvm/machine/single_process.hpp"

namespace tinykvm {

// One region of the address space. In an image every region is anonymous memory, because file content has been read in.
// The exceptions are shared mappings of files: see FileMappingState.
struct RegionState {
    std::uint64_t begin = 0, end = 0; // page-aligned guest addresses
    std::uint32_t prot = 0;           // PROT_READ 1, PROT_WRITE 2, PROT_EXEC 4
    std::uint32_t flags = 0;          // see memory/address_space.hpp
    std::string name;                 // "" or a path or "[stack]"
    bool operator==(const RegionState&) const = default;
};

struct FrameRun {
    std::uint32_t first = 0, count = 0; // in frames of 4096 bytes
    bool operator==(const FrameRun&) const = default;
};
// Adds a frame: extends the last run if the frame follows it, otherwise begins a new run.
inline void append_frame(std::vector<FrameRun>& runs, std::uint32_t frame) {
    if (!runs.empty() && runs.back().first + runs.back().count == frame)
        ++runs.back().count;
    else
        runs.push_back({frame, 1});
}

// A region that is a shared mapping of a file.
struct FileMappingState {
    std::uint64_t begin = 0; // of the region
    std::int32_t handle = 0; // of the file
    std::uint64_t offset = 0;
    // Of the file when its pages were read into the image. Frozen regions only.
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;
    bool operator==(const FileMappingState&) const = default;
};

struct ListenerState {
    std::uint32_t id = 0;              // the guest's listener number, < abi::kMaxListeners
    std::uint32_t family = 0;          // AF_INET, AF_INET6, AF_UNIX
    std::vector<std::uint8_t> address; // the sockaddr as bound
    std::uint64_t flags = 0;           // abi::BindFlags; may be absent in a file
    bool operator==(const ListenerState&) const = default;
};

// One leaf of CPUID as the program saw it.
struct CpuidLeaf {
    std::uint32_t function = 0, index = 0, flags = 0;
    std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
    bool operator==(const CpuidLeaf&) const = default;
};

struct CpuState {
    std::uint64_t xcr0 = 0;
    std::vector<CpuidLeaf> cpuid;
    bool operator==(const CpuState&) const = default;
};

// In bytes unless said otherwise. 0 means "no limit" only where said.
struct Limits {
    double boot_seconds = 60;             // CPU time and waiting time
    double request_seconds = 8;           // without progress: CPU time, and waiting for nothing or for an idle client
    double request_total_seconds = 300;   // of a request, whatever it does
    double request_cpu_seconds = 0;       // CPU time of a request, of a machine that is reset after it; 0: no limit
    std::uint64_t memory = 8192ull << 20; // all of a machine's memory
    std::uint64_t address_space = 122880ull << 20; // virtual
    std::uint64_t request_memory = 128ull << 20;   // dirtied or added while one connection is served
    std::uint64_t keep_memory = 128ull << 20;      // private memory that a machine keeps between requests
    // Memory of a machine that is reset, for what requests add, in huge pages of the host (memory/request_arena.hpp).
    // Not more than request_memory; 0: none.
    std::uint64_t request_arena = 0;
    std::uint32_t open_files = 1024;
    bool executable_heap = true; // false: memory from brk is never made executable
    bool operator==(const Limits&) const = default;
};

// Memory that a machine may use in addition to an image of this size: request_memory, or less if `memory` leaves less.
constexpr std::uint64_t memory_beside_image(const Limits& limits, std::uint64_t image_bytes) {
    return std::min(limits.request_memory, limits.memory - std::min(limits.memory, image_bytes));
}

// An environment variable whose value may be replaced in the program's memory. `bytes` hold "NAME=VALUE" and zeroes.
struct LateVariable {
    std::string name;
    std::uint64_t at = 0; // guest address
    std::uint64_t bytes = 0;
    bool operator==(const LateVariable&) const = default;
};

// How an entropy region is filled before every invocation.
enum class EntropyFill : std::uint32_t {
    random = 0,   // fresh random bytes
    constant = 1, // EntropyRegion::constant, such as an index that says "the pool is used up"
    pid = 2,      // the process number of the invocation: 4 bytes
};

// A range of the program's writable memory that holds random state (a generator, a pool of random bytes). It is filled
// anew before every invocation, so that no two invocations draw the same values.
struct EntropyRegion {
    std::uint64_t at = 0; // guest address
    std::uint64_t bytes = 0;
    EntropyFill fill = EntropyFill::random;
    std::vector<std::uint8_t> constant; // for EntropyFill::constant: `bytes` long; else empty
    std::string source;                 // description for people: "V8 Math.random"
    bool operator==(const EntropyRegion&) const = default;
};

// 2 MiB of file content that one large page of the host can back.
struct LargePageState {
    std::uint64_t at = 0;                  // guest address
    std::array<std::uint8_t, 32> sha256{}; // of the content
    FrameRun hot;                          // those of its frames that the first invocation uses
    bool operator==(const LargePageState&) const = default;
};

struct ProgramState {
    std::string path;              // absolute path of the script, or else of the ELF program
    std::vector<std::string> args; // args[0] is the program as named
    std::vector<std::string> env_names;
    std::string cwd;
    bool operator==(const ProgramState&) const = default;
};

struct MachineState {
    std::uint32_t guest_abi = 0;                        // abi::kVersion
    std::array<std::uint8_t, 32> guest_kernel_digest{}; // SHA-256 of the guest kernel in the image
    std::uint32_t entry_mode = 0;                       // of the host that made it; a restore may use another
    std::uint64_t page_table_root = 0;
    std::uint32_t frames = 0;          // the image is frames * 4096 bytes
    std::vector<FrameRun> free_frames; // not used: always empty
    std::vector<FrameRun> working_set; // frames that the first invocation wrote to: clones copy them in advance
    std::vector<FrameRun> headroom;    // frames after the image that it used; may be absent in a file
    std::vector<RegionState> regions;
    std::uint64_t brk_begin = 0, brk_end = 0;
    // ClockTimes when the machine last waited. boot_ns is 0 in older files.
    std::uint64_t mono_ns = 0, boot_ns = 0, real_ns = 0;
    bool clock_continues = false;        // GuestTime; may be absent in a file
    ForkPolicy fork = ForkPolicy::known; // may be absent in a file
    std::uint64_t random_at = 0;         // guest address of AT_RANDOM's 16 bytes, renewed in each clone
    std::vector<LateVariable> late_env;  // may be absent in a file
    std::vector<EntropyRegion> entropy;  // may be absent in a file
    std::vector<std::string>
        repeats; // findings about random values that every request would repeat, a line each; may be absent in a file
    std::vector<LargePageState> large_pages; // by address; may be absent in a file
    std::uint32_t threads = 0;
    CpuState cpu;
    std::vector<ListenerState> listeners;
    std::vector<HandleState> handles;
    std::vector<FileMappingState> file_mappings; // by address; may be absent in a file
    ProgramState program;
    Permissions permissions;
    Limits limits;
};

} // namespace tinykvm
