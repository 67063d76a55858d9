#include "src/runner/saved_state.hpp"

#include <algorithm>
#include <utility>

#include "src/capture/random_state.hpp"
#include "src/setup/report.hpp"
#include "src/snapshot/metadata.hpp"
#include "src/snapshot/state_file.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

Digest base_of(const MachineState& snapshot) { return sha256(encode_metadata({{}, snapshot})); }

std::shared_ptr<MachineImage> resume_state(const Setup& setup, const MachineImage& image, int file, const Digest& base,
                                           const std::string& name,
                                           const std::function<std::optional<std::uint64_t>()>& sizes,
                                           std::vector<Frame>& changed) {
    const std::string what = name + ": its saved state";
    Image& memory = *image.image;
    std::optional<StateFile> state;
    std::size_t read = 0; // parts
    while (const auto size = sizes()) {
        state.emplace(file, *size, base, what);
        if (state->machine().frames < memory.frames())
            throw UserError(ExitCode::bad_snapshot, what + ": it has less memory than its snapshot");
        memory.grow(state->machine().frames - memory.frames());
        state->read_pages([&](Frame first, std::span<const std::byte> pages) { memory.replace(first, pages); }, read);
        read = state->parts();
    }
    std::vector<std::string> warnings;
    auto resumed = from_state(state->machine(), image.image, *setup.policy, warnings);
    for (const std::string& warning : warnings)
        note_line(warning);
    changed.insert(changed.end(), state->frames().begin(), state->frames().end());
    return resumed;
}

MergedMachine image_of(Machine&& machine, std::shared_ptr<Image> memory, const std::vector<EntropyRegion>* regions) {
    const bool moved = regions ? machine.entropy_may_have_moved(*regions) : machine.entropy_may_have_moved();
    auto known = regions ? *regions : machine.image().entropy;
    MergedMachine merged;
    merged.image = std::move(machine).merge_into(std::move(memory), &merged.changed, &merged.unused);
    merged.knows_random_state = !moved;
    if (moved) {
        merged.image->entropy.clear();
        merged.image->keep_pid = true;
    } else {
        set_random_state(*merged.image, std::move(known));
    }
    return merged;
}

} // namespace kvmserver
