#include "src/capture/before_snapshot.hpp"

#include "src/capture/hook.hpp"
#include "src/event_loop/event_loop.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/machine/renumber.hpp"

namespace kvmserver {

using namespace tinykvm;

std::shared_ptr<MachineImage> before_snapshot(const Setup& setup, const std::shared_ptr<const MachineImage>& image,
                                              const std::string& path) {
    EventLoop loop(*setup.listeners, note_line);
    auto machine = Machine::clone(setup.env, image, loop, ResetStrategy::working_set);
    run_hook(*machine, loop, setup.env.limits, {.name = "before-snapshot", .path = path, .body = "{}"});
    return renumber(*std::move(*machine).into_image(), {});
}

} // namespace kvmserver
