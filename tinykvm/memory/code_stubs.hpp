// Stubs that jumps in a program's code lead to (memory/code_sites.hpp), one a site, 32 bytes each:
//
//   what the jump replaced, up to the SYSCALL or CPUID
//   lea   behind_it(%rip), %rcx           as SYSCALL sets it; %rdx, which CPUID overwrites
//   jmp   *entry(%rip)                    one of the words in the page's head
//
// The guest kernel tells from a page's head and a stub's tail where in the program an interrupted stub is (guest/abi.hpp).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tinykvm/memory/code_sites.hpp"

namespace tinykvm {

// Where stubs lead to (abi::KernelHeader).
struct StubEntries {
    std::uint64_t system_call = 0, cpuid = 0;
};

// What is different in one mapping of a file's code.
class CodePatches {
public:
    // A site as it is found in the file: at = offset in the file.
    CodePatches(std::vector<CodeSite> sites, std::uint64_t stubs_at) : sites_(std::move(sites)), stubs_at_(stubs_at) {}

    static std::uint64_t stub_bytes(std::size_t sites); // whole pages
    std::uint64_t stubs_at() const { return stubs_at_; }
    std::uint64_t stubs_bytes() const { return stub_bytes(sites_.size()); }

    // The stubs' pages. `shift` is what is added to an offset in the file for the address in the guest.
    std::vector<std::byte> stubs(std::uint64_t shift, const StubEntries& entries) const;
    // Puts the jumps into `bytes`, which begin at `offset` of the file; or, with `undo`, what they replaced.
    void apply(std::span<std::byte> bytes, std::uint64_t offset, std::uint64_t shift, bool undo = false) const;

private:
    std::uint64_t stub_of(std::size_t site) const; // its address
    std::vector<CodeSite> sites_; // in order
    std::uint64_t stubs_at_;
};

// Sites in [offset, offset + bytes) of a file; `at` of each is an offset in the file. Nothing when it cannot be read.
std::vector<CodeSite> find_code_sites(int fd, std::uint64_t offset, std::uint64_t bytes);

} // namespace tinykvm
