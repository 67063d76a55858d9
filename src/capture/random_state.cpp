#include "src/capture/random_state.hpp"

#include <fmt/format.h>

#include "src/setup/report.hpp"
#include "src/setup/setup.hpp"
#include "src/unique/finder.hpp"
#include "src/unique/machine_memory.hpp"
#include "tinykvm/machine/loop_region.hpp"

namespace kvmserver {

std::vector<tinykvm::EntropyRegion> random_state_in(const tinykvm::MachineImage& image) {
    return unique::find_entropy(unique::MachineMemory(image).view()).regions;
}

void set_random_state(tinykvm::MachineImage& image, std::vector<tinykvm::EntropyRegion> regions) {
    image.entropy = std::move(regions);
    image.keep_pid = tinykvm::must_keep_pid(*image.regions) && !tinykvm::knows_running_loop(image.entropy);
}

std::string find_random_state(tinykvm::MachineImage& image, const std::string& name) {
    const std::uint64_t begin = tinykvm::host_mono_ns();
    const unique::MachineMemory memory(image);
    const std::uint64_t copied = tinykvm::host_mono_ns();
    unique::Found found = unique::find_entropy(memory.view());
    set_random_state(image, std::move(found.regions));
    if (name.empty())
        return found.left_out;
    for (const tinykvm::EntropyRegion& region : image.entropy)
        note_line(fmt::format("{}: {}: {} bytes at {:#x} are filled anew before every invocation", name, region.source,
                              region.bytes, region.at));
    note_line(fmt::format("{}: looked for random state in {:.1f} ms, {:.1f} of them to copy memory", name,
                          static_cast<double>(tinykvm::host_mono_ns() - begin) / 1e6,
                          static_cast<double>(copied - begin) / 1e6));
    return found.left_out;
}

} // namespace kvmserver
