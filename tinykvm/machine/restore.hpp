// A machine's image to plain values and back.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/state.hpp"

namespace tinykvm {

CpuState cpu_state(const kvm::GuestCpu& cpu);
// The CPU that a restored program sees: what it saw before. Throws UserError (bad_snapshot) for values no CPU has.
kvm::GuestCpu guest_cpu(const CpuState& state);

MachineState to_state(const MachineImage& image, const MachineEnv& env, const ProgramSpec& program);

// Checks everything that a hostile file could have put into `state`, then reopens the host handles. `memory` must
// have the bytes of the guest kernel's own pages and the page tables (or a loader that brings them).
// Throws UserError (bad_snapshot). Lines for people, about files that are gone, go to `warnings`.
std::shared_ptr<MachineImage> from_state(const MachineState& state, std::shared_ptr<Image> memory, const Policy& policy,
                                         std::vector<std::string>& warnings);

// Clears the dirty bits of pages and the accessed bits of tables, as the dirty-bit reset wants them. Before any clone
// is made, after make_lazy().
void clear_marks(const MachineImage& image, Image& memory);

// Marks pages whose bytes are still in the file as not present in the image's page tables, so that the first
// touch of one asks for it; under shadow paging, finds out what clones had better have as copies of their own
// (hot_read_only, hot_unwritten) of the frames before `hot_end`, and those must not be in parts. Before any clone is
// made. Returns how many are not present.
std::uint64_t make_lazy(MachineImage& image, Image& memory, bool shadow_paging, Frame hot_end = ~Frame{0});

} // namespace tinykvm
