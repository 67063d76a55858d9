// kvmserver suspend and resume: machines that keep their state are saved, or started again.
#include <fmt/format.h>

#include "src/cli/platform/platform.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

int change(const Invocation& invocation, Context& context, const char* command, const char* done) {
    expect_operands(invocation, command, "NAME", 1, 1);
    const json reply =
        connect(invocation, context)->call("POST", target_of({"functions", invocation.operands.front(), command}));
    if (flag(invocation, "json")) {
        print_json(context, reply);
        return 0;
    }
    const auto machines = reply.at("machines").get<std::uint64_t>();
    context.out << fmt::format("{}: {} machine{} {}\n", reply.at("name").get<std::string>(), machines,
                               machines == 1 ? "" : "s", done);
    return 0;
}

int suspend(const Invocation& invocation, Context& context) {
    return change(invocation, context, "suspend", "suspended");
}

int resume(const Invocation& invocation, Context& context) { return change(invocation, context, "resume", "started"); }

} // namespace

Command suspend_command() {
    return {.name = "suspend",
            .synopsis = "NAME",
            .summary = "save the machines of a function, and end its processes",
            .operands = Operands::ours,
            .options = options({}),
            .action = suspend,
            .words = {Words::functions}};
}

Command resume_command() {
    return {.name = "resume",
            .synopsis = "NAME",
            .summary = "start the machines of a function where they were saved",
            .operands = Operands::ours,
            .options = options({}),
            .action = resume,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
