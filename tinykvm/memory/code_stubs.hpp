// Stubs: the targets of the jumps in a program's patched code (memory/code_sites.hpp). One per site, 32 bytes each:
//
//   the instructions that were moved, up to the SYSCALL or CPUID
//   lea   behind_it(%rip), %rcx           return address, as SYSCALL sets it; for CPUID %rdx, which CPUID overwrites
//   jmp   *entry(%rip)                    StubPage::entry or cpuid_entry in the page's head
//
// From a page's head and a stub's last byte the guest kernel finds the place in the program that an interrupted stub
// corresponds to (abi::StubPage).
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

// The patches of one mapping of a file's code.
class CodePatches {
public:
    // CodeSite::at is an offset in the file; with `shift` added it is the guest address.
    CodePatches(std::vector<CodeSite> sites, std::uint64_t shift, std::uint64_t stubs_at)
        : sites_(std::move(sites)), shift_(shift), stubs_at_(stubs_at) {}

    static std::uint64_t stub_bytes(std::size_t sites); // whole pages
    std::size_t sites() const { return sites_.size(); }
    std::uint64_t stubs_at() const { return stubs_at_; }
    std::uint64_t stubs_bytes() const { return stub_bytes(sites_.size()); }

    std::vector<std::byte> stubs(const StubEntries& entries) const; // content of the stub pages
    // Writes the jumps into whole pages that begin at guest address `address`. Skips sites whose bytes have changed
    // since the search.
    void apply(std::span<std::byte> pages, std::uint64_t address) const;

private:
    std::uint64_t stub_of(std::size_t site) const; // address of a site's stub
    std::vector<CodeSite> sites_;                  // in order
    std::uint64_t shift_, stubs_at_;
};

// The bytes that a jump at guest address `address` has replaced. nullopt when `stub`, at `stub_address`, does not
// belong to that jump.
std::optional<std::array<std::byte, kJumpBytes>>
replaced_by_jump(std::uint64_t address, std::span<const std::byte, abi::kStubBytes> stub, std::uint64_t stub_address);

// Sites in [offset, offset + bytes) of a file, at most `max_sites`. CodeSite::at is an offset in the file, and no jump
// crosses a page boundary. Parts that cannot be read have no sites. Very large code and code with too many possible
// sites are searched in part only.
std::vector<CodeSite> find_code_sites(int fd, std::uint64_t offset, std::uint64_t bytes, std::size_t max_sites);

} // namespace tinykvm
