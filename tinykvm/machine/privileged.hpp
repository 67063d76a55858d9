// What runs at CPL 0 and what decides what does: the guest kernel's few instructions there, the descriptor
// tables, the stack for exceptions. A snapshot's file holds them as it holds all memory, but they are never
// taken from it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

// Descriptor tables, I/O bitmap and exception stack for a guest kernel; `pvm`: for a host of that kind.
std::vector<std::byte> cpu_tables(const abi::KernelHeader& kernel, bool pvm);

// The pages of a guest kernel of this ABI that run at CPL 0. But for two addresses of it, these are this
// build's own.
std::vector<std::byte> supervisor_code(const abi::KernelHeader& kernel);

// Before any clone of an image from a file is made.
class PrivilegedPages {
public:
    // Finds them. Throws UserError (bad_snapshot) when they are not what and where this build has them.
    PrivilegedPages(const MachineImage& image, Image& memory);
    // To be called with each mapped leaf entry of the image: throws when CPL 0 could reach more than these
    // pages, or anybody else them.
    void check(std::uint64_t at, std::uint64_t entry) const;
    // Puts this build's own content there, with the rights that it has.
    void put_own(bool pvm);

private:
    struct Page {
        std::uint64_t at;
        std::uint64_t* entry;
        Frame frame;
    };
    void find(std::uint64_t begin, std::uint64_t end);
    void put(std::span<const std::byte> content, std::uint64_t begin, std::uint64_t flags);

    const MachineImage& image_;
    Image& memory_;
    abi::KernelHeader kernel_{};
    std::vector<Page> pages_;
    std::vector<bool> taken_; // frames of these pages
};

} // namespace tinykvm
