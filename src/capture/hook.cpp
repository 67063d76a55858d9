#include "src/capture/hook.hpp"

#include <fmt/format.h>

#include "src/capture/synthetic_request.hpp"
#include "src/event_loop/overrun.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

[[noreturn]] void fail(ExitCode code, const Hook& hook, const std::string& why) {
    throw UserError(code, fmt::format("the {} hook: POST {}: {}", hook.name, hook.path, why));
}

} // namespace

void run_hook(Machine& machine, EventLoop& loop, const Limits& limits, const Hook& hook) {
    const SyntheticReply reply =
        ask(machine, loop,
            fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kvmserver-{}\r\n"
                        "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                        hook.path, hook.name, hook.body.size(), hook.body),
            limits);
    if (reply.end == LoopEnd::stopped)
        fail(ExitCode::failure, hook, "the program ended: " + loop.stop().report);
    if (reply.end == LoopEnd::timeout)
        fail(ExitCode::unreachable, hook, "it " + overrun_text(loop.overrun(), limits));
    if (reply.end == LoopEnd::stuck)
        fail(ExitCode::unreachable, hook, "it waits for what never comes");
    if (reply.end == LoopEnd::requested)
        fail(ExitCode::failure, hook, "stopped");
    const unsigned status = reply.status();
    if (status < 200 || status > 299)
        fail(ExitCode::failure, hook, status == 0 ? "no HTTP reply" : fmt::format("status {}", status));
    if (!settle(machine, loop, limits.request_seconds))
        fail(ExitCode::failure, hook, "the program does not wait for connections afterwards");
}

} // namespace kvmserver
