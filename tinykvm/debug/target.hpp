// What a debugger and a core file need of a stopped program. A machine implements it (machine/debug_target.hpp); the
// rest of this folder knows no machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tinykvm/abi/guest_kernel.hpp"

namespace tinykvm::debug {

struct Registers {
    abi::ThreadRegisters general{};
    std::uint64_t fs_base = 0, gs_base = 0;
    std::vector<std::byte> vector; // vector_bytes() of them, at the places below
};

// The vector state as XSAVE writes it on Intel's CPUs, which debuggers expect (AMD's have AVX-512 elsewhere): x87 and
// SSE as FXSAVE writes them, then at 512 which components are in use, then these.
inline constexpr std::size_t kFxsaveBytes = 512, kInUseAt = 512, kAvxAt = 576, kMasksAt = 1088, kUpperHalvesAt = 1152,
                             kUpperRegistersAt = 1664;
// Bits of XCR0.
inline constexpr std::uint64_t kSse = 2, kAvx = 4, kAvx512 = 0xe0;
// Bytes for these components of XCR0. 0: the machine has no XSAVE.
constexpr std::size_t vector_bytes(std::uint64_t components) {
    return components == 0 ? kFxsaveBytes : (components & kAvx512) ? 2688 : (components & kAvx) ? 832 : 576;
}

struct ThreadInfo {
    std::uint32_t id = 0;
    std::string name;
};

// A range of the program's addresses.
struct MemoryRange {
    std::uint64_t begin = 0, end = 0;
    std::uint32_t prot = 0;   // PROT_READ | PROT_WRITE | PROT_EXEC
    std::string file;         // the path that it was mapped by; "" if it is not from a file
    std::uint64_t offset = 0; // of `begin` in the file
    bool as_file = false;     // its content is the file's
};

// The values are those of the program and as hostile as it is: each function checks what it is given by the guest, and
// returns less or false instead of failing.
class Target {
public:
    virtual ~Target() = default;
    // The thread that ran last is the first one.
    virtual std::vector<ThreadInfo> threads() = 0;
    virtual bool registers(std::uint32_t thread, Registers& out) = 0;
    virtual bool set_registers(std::uint32_t thread, const Registers& values) = 0;
    virtual std::uint64_t vector_components() const = 0; // XCR0 of the program; 0: no XSAVE

    // Memory of the program, whatever its protection. Code shows the bytes of its file, and never the engine's jumps.
    virtual bool read(std::uint64_t at, std::span<std::byte> to) = 0;
    virtual bool write(std::uint64_t at, std::span<const std::byte> from) = 0;
    virtual std::vector<MemoryRange> ranges() = 0; // by address
    // Calls fn for each page in [begin, end) that has content, by address.
    virtual void for_each_page(std::uint64_t begin, std::uint64_t end,
                               const std::function<void(std::uint64_t)>& fn) = 0;

    virtual std::uint32_t process() const = 0;
    virtual std::vector<std::byte> auxiliary_vector() = 0; // from the program's initial stack
    virtual std::string program() = 0;                     // path of its executable file; "" if it is not known
    virtual std::string arguments() const = 0;             // its command line, for a person
};

} // namespace tinykvm::debug
