// Finds the random state of a quiescent program: generators and pools of random bytes from which every invocation would
// draw the same values. There is one finder for each runtime or library, in a file of its own; finders.cpp lists them.
//
// A finder must be certain. What it reports is overwritten before every invocation, so a wrong guess destroys the
// program's data. A finder checks its matches for consistency (a cached block is recomputed from its key, an object's
// type is followed to its name) and never reports a generator that the program has seeded on purpose.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/unique/memory_view.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver::unique {

// Collects what finders find. The add_* functions check that a region lies in writable memory of the program.
class Findings {
public:
    explicit Findings(const MemoryView& memory) : memory_(&memory) {}

    // Add nothing and return false when the range is not the program's writable memory, or when there are too many
    // regions.
    bool add_random(tinykvm::GuestVirt at, std::size_t bytes, std::string source);
    bool add_constant(tinykvm::GuestVirt at, std::span<const std::byte> value, std::string source);
    bool add_pid(tinykvm::GuestVirt at, std::string source); // 4 bytes
    void add_all(const Findings& others);
    // Regions sorted by address. Of two that overlap, the first one added is kept.
    std::vector<tinykvm::EntropyRegion> take() const;
    // Notes why regions may be missing.
    void leave_out(std::string why) { left_out_ = std::move(why); }
    const std::string& left_out() const { return left_out_; }

private:
    bool add(tinykvm::EntropyRegion region);
    const MemoryView* memory_;
    std::map<std::uint64_t, tinykvm::EntropyRegion> regions_; // keyed by address
    std::uint64_t bytes_ = 0;
    std::string left_out_;
};

struct Found {
    std::vector<tinykvm::EntropyRegion> regions; // sorted by address, none overlapping
    std::string left_out;                        // why regions may be missing; "" when the list is complete
};

using Finder = void (*)(const MemoryView&, Findings&);

// Runs all finders, on all CPUs, within a time limit and within the limits of a machine (check_entropy_regions()).
Found find_entropy(const MemoryView& memory);

// The finders. Each first checks cheaply whether its runtime is present.
void find_cookies(const MemoryView& memory, Findings& findings); // include/kvmserver/entropy.h
void find_bun(const MemoryView& memory, Findings& findings);     // JavaScriptCore's Math.random, Bun's pool for crypto
void find_cpython(const MemoryView& memory, Findings& findings); // including numpy
void find_go(const MemoryView& memory, Findings& findings);
void find_java(const MemoryView& memory, Findings& findings);
void find_ruby(const MemoryView& memory, Findings& findings);
void find_rust_rand(const MemoryView& memory, Findings& findings);
void find_php(const MemoryView& memory, Findings& findings);
void find_v8(const MemoryView& memory, Findings& findings); // Math.random, pools of Node and npm packages

} // namespace kvmserver::unique
