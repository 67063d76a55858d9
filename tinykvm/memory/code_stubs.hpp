// Stubs that jumps in a program's code lead to (memory/code_sites.hpp), one a site, 32 bytes each:
//
//   what the jump replaced, up to the SYSCALL or CPUID
//   lea   behind_it(%rip), %rcx           as SYSCALL sets it; %rdx, which CPUID overwrites
//   jmp   *entry(%rip)                    one of the words in the page's head
//
// The guest kernel tells from a page's head and a stub's tail where in the program an interrupted stub is
// (guest/abi.hpp).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/memory/code_sites.hpp"

namespace tinykvm {

// Where stubs lead to (abi::KernelHeader).
struct StubEntries {
    std::uint64_t system_call = 0, cpuid = 0;
};

// What is different in one mapping of a file's code.
class CodePatches {
public:
    // A site as it is found in the file: at = offset in the file. `shift` is what is added to it for the address in the
    // guest.
    CodePatches(std::vector<CodeSite> sites, std::uint64_t shift, std::uint64_t stubs_at)
        : sites_(std::move(sites)), shift_(shift), stubs_at_(stubs_at) {}

    static std::uint64_t stub_bytes(std::size_t sites); // whole pages
    std::size_t sites() const { return sites_.size(); }
    std::uint64_t stubs_at() const { return stubs_at_; }
    std::uint64_t stubs_bytes() const { return stub_bytes(sites_.size()); }

    std::vector<std::byte> stubs(const StubEntries& entries) const; // their pages
    // Puts the jumps into whole pages that begin at `address` of the guest. What is not as it was when sites were
    // looked for stays.
    void apply(std::span<std::byte> pages, std::uint64_t address) const;

private:
    std::uint64_t stub_of(std::size_t site) const; // its address
    std::vector<CodeSite> sites_;                  // in order
    std::uint64_t shift_, stubs_at_;
};

// What a jump at `address` of the guest has replaced, when `stub`, at `stub_address`, is one that it can lead to.
std::optional<std::array<std::byte, kJumpBytes>>
replaced_by_jump(std::uint64_t address, std::span<const std::byte, abi::kStubBytes> stub, std::uint64_t stub_address);

// Sites in [offset, offset + bytes) of a file; `at` of each is an offset in the file, and no jump would lie in two
// pages. Nothing where it cannot be read, and not more than `most`; of files that only look like code not all is looked
// at.
std::vector<CodeSite> find_code_sites(int fd, std::uint64_t offset, std::uint64_t bytes, std::size_t most);

} // namespace tinykvm
