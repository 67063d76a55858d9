// Finds the random state of a quiescent program: generators and pools of random bytes that every invocation would
// draw the same values from. There is one finder for each runtime or library, a file each; finders.cpp lists them.
//
// A finder must be certain. What it names is overwritten before every invocation, so a wrong guess destroys the
// program's data. It checks what it found against itself (a cached block is recomputed from its key, an object's type
// is followed to its name) and never overwrites a generator that the program has seeded on purpose.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/unique/memory_view.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver::unique {

// What finders found. Regions lie in writable memory of the program; finders use add_*, which check that.
class Findings {
public:
    explicit Findings(const MemoryView& memory) : memory_(&memory) {}

    // False when the range is not the program's writable memory, or there are too many: nothing is added then.
    bool add_random(tinykvm::GuestVirt at, std::size_t bytes, std::string source);
    bool add_constant(tinykvm::GuestVirt at, std::span<const std::byte> value, std::string source);
    bool add_pid(tinykvm::GuestVirt at, std::string source); // 4 bytes
    // By address. Of two that overlap the one that was found first stays.
    std::vector<tinykvm::EntropyRegion> take() const;
    // Something is not added, and why.
    void leave_out(std::string why) { left_out_ = std::move(why); }
    const std::string& left_out() const { return left_out_; }

private:
    bool add(tinykvm::EntropyRegion region);
    const MemoryView* memory_;
    std::map<std::uint64_t, tinykvm::EntropyRegion> regions_; // by address
    std::uint64_t bytes_ = 0;
    std::string left_out_;
};

struct Found {
    std::vector<tinykvm::EntropyRegion> regions; // by address, none overlapping
    std::string left_out;                        // why there may be more; "" when that was all
};

using Finder = void (*)(const MemoryView&, Findings&);

// What all finders find, within some time and within what a machine can have (check_entropy_regions()).
Found find_entropy(const MemoryView& memory);

// The finders. Each looks first, cheaply, whether its runtime is there at all.
void find_cookies(const MemoryView& memory, Findings& findings); // include/kvmserver/entropy.h
void find_bun(const MemoryView& memory, Findings& findings);     // Math.random of JavaScriptCore, pool of crypto
void find_cpython(const MemoryView& memory, Findings& findings); // and numpy
void find_go(const MemoryView& memory, Findings& findings);
void find_java(const MemoryView& memory, Findings& findings);
void find_ruby(const MemoryView& memory, Findings& findings);
void find_rust_rand(const MemoryView& memory, Findings& findings);
void find_php(const MemoryView& memory, Findings& findings);
void find_v8(const MemoryView& memory, Findings& findings); // Math.random, pools of Node and of npm packages

} // namespace kvmserver::unique
