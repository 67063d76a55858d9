#include "src/capture/after_restore.hpp"

#include <fmt/format.h>

#include "src/capture/hook.hpp"
#include "src/capture/random_state.hpp"
#include "src/event_loop/event_loop.hpp"
#include "src/setup/report.hpp"

namespace kvmserver {

using namespace tinykvm;

std::shared_ptr<MachineImage> after_restore(const Setup& setup, std::shared_ptr<MachineImage> image,
                                            const std::string& path, const std::string& body,
                                            std::vector<Frame>* changed) {
    EventLoop loop(EventLoop::Own::dry, note_line);
    const std::shared_ptr<Image> memory = image->image;
    auto machine = Machine::clone(setup.env, std::move(image), loop, ResetStrategy::working_set);
    run_hook(*machine, loop, setup.env.limits, {.name = "after-restore", .path = path, .body = body});
    // The hook may have moved generators or created new ones. If it did not touch the memory around them, they are
    // where they were, and no more of the image needs to be loaded.
    const bool moved = machine->entropy_may_have_moved();
    auto regions = machine->image().entropy;
    auto merged = std::move(*machine).merge_into(memory, changed);
    if (!moved)
        merged->entropy = std::move(regions);
    else if (const std::string left_out = find_random_state(*merged, ""); !left_out.empty())
        note_line(fmt::format("the after-restore hook: not all random state is filled anew in every invocation: {}",
                              left_out));
    return merged;
}

} // namespace kvmserver
