// The pages that run at CPL 0 or decide what does: the guest kernel's few instructions there, the descriptor tables and
// the exception stack. A snapshot file contains them, as it does all memory, but a restore replaces them with this
// build's own.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

// Descriptor tables, I/O bitmap and exception stack for a guest kernel; `pvm`: for a host of that kind.
std::vector<std::byte> cpu_tables(const abi::KernelHeader& kernel, bool pvm);

// The CPL 0 pages for a guest kernel of this ABI: this build's code, with two addresses of that guest kernel.
std::vector<std::byte> supervisor_code(const abi::KernelHeader& kernel);

// Checks and replaces the privileged pages of an image from a file. Use this before any clone of it is made.
class PrivilegedPages {
public:
    // Finds the pages. Throws UserError (bad_snapshot) when they differ from this build's in layout or place.
    PrivilegedPages(const MachineImage& image, Image& memory);
    // Call this with each mapped leaf entry of the image. Throws UserError (bad_snapshot) when CPL 0 could reach
    // other pages than these, or when another address maps one of these.
    void check(std::uint64_t at, std::uint64_t entry) const;
    // Writes this build's content to the pages, and sets the rights in their entries. `pvm`: for a host of that kind.
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
    std::vector<bool> taken_; // by frame: whether it is in pages_
};

} // namespace tinykvm
