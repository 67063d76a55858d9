// Converts a machine's image to plain values and back.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/state.hpp"

namespace tinykvm {

CpuState cpu_state(const kvm::GuestCpu& cpu);
// The CPU that a restored program sees: the one it saw before. Throws UserError (bad_snapshot) when the number of CPUID
// leaves is impossible.
kvm::GuestCpu guest_cpu(const CpuState& state);

// The image as plain values, for a snapshot.
MachineState to_state(const MachineImage& image, const MachineEnv& env, const ProgramSpec& program);

// Checks everything that a hostile file could have put into `state`, then reopens the host handles. `memory` must hold
// the guest kernel's own pages and the page tables, or have a loader that brings them. Throws UserError (bad_snapshot).
// Adds a line to `warnings` for each file that is gone.
std::shared_ptr<MachineImage> from_state(const MachineState& state, std::shared_ptr<Image> memory, const Policy& policy,
                                         std::vector<std::string>& warnings);

// Clears the dirty bits of pages and the accessed bits of tables, as the dirty-bit reset requires. Call this after
// make_lazy(), before any clone is made.
void clear_marks(const MachineImage& image, Image& memory);

// Marks pages that are not loaded yet as not present in the image's page tables, so that the first touch of one loads
// it. Also checks the page tables of a hostile file and replaces the privileged pages. Under shadow paging, finds the
// frames before `hot_end` that clones should share (hot_files) or copy in advance (hot_read_only, hot_unwritten).
// Nothing may add a part there later, but exchange() where hot_files are not. Call this before any clone is made.
// Returns the number of pages that are not present. Throws UserError (bad_snapshot).
std::uint64_t make_lazy(MachineImage& image, Image& memory, bool shadow_paging, Frame hot_end = ~Frame{0});

} // namespace tinykvm
