#include "src/capture/after_restore.hpp"

#include <fmt/format.h>

#include "src/capture/random_state.hpp"
#include "src/capture/synthetic_request.hpp"
#include "src/event_loop/event_loop.hpp"
#include "src/event_loop/overrun.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

[[noreturn]] void fail(ExitCode code, const std::string& path, const std::string& why) {
    throw UserError(code, fmt::format("the after-restore hook: POST {}: {}", path, why));
}

} // namespace

std::shared_ptr<MachineImage> after_restore(const Setup& setup, std::shared_ptr<MachineImage> image,
                                            const std::string& path, const std::string& body) {
    EventLoop loop(EventLoop::Own::dry, note_line);
    const std::shared_ptr<Image> memory = image->image;
    auto machine = Machine::clone(setup.env, std::move(image), loop, ResetStrategy::working_set);
    const double seconds = setup.env.limits.request_seconds;
    const SyntheticReply reply =
        ask(*machine, loop,
            fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kvmserver-after-restore\r\n"
                        "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                        path, body.size(), body),
            setup.env.limits);
    if (reply.end == LoopEnd::stopped)
        fail(ExitCode::failure, path, "the program ended: " + loop.stop().report);
    if (reply.end == LoopEnd::timeout)
        fail(ExitCode::unreachable, path, "it " + overrun_text(loop.overrun(), setup.env.limits));
    if (reply.end == LoopEnd::requested)
        fail(ExitCode::failure, path, "stopped");
    const unsigned status = reply.status();
    if (status < 200 || status > 299)
        fail(ExitCode::failure, path, status == 0 ? "no HTTP reply" : fmt::format("status {}", status));
    if (!settle(*machine, loop, seconds))
        fail(ExitCode::failure, path, "the program does not wait for connections afterwards");
    // The hook may have moved generators or created new ones. If it did not touch the memory around them, they are
    // where they were, and no more of the image needs to be loaded.
    const bool moved = machine->entropy_may_have_moved();
    auto regions = machine->image().entropy;
    auto merged = std::move(*machine).merge_into(memory);
    if (!moved)
        merged->entropy = std::move(regions);
    else if (const std::string left_out = find_random_state(*merged, ""); !left_out.empty())
        note_line(fmt::format("the after-restore hook: not all random state is filled anew in every invocation: {}",
                              left_out));
    return merged;
}

} // namespace kvmserver
