// kvmserver history: who changed a function, when, how and why.
#include <fmt/format.h>

#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

// "alice", "token ci", "operator".
std::string author_text(const json& author) {
    const auto kind = author.at("kind").get<std::string>();
    const auto name = author.at("name").get<std::string>();
    return kind == "user" ? name : name.empty() ? kind : fmt::format("{} {}", kind, name);
}

// "args, snapshot; 31 MiB, 2.1 MiB new".
std::string change_text(const json& event) {
    auto text = event.at("change").get<std::string>();
    if (event.contains("bytes"))
        text += "; " + bytes_text(event.at("bytes").get<std::uint64_t>());
    if (event.contains("new_bytes"))
        text += fmt::format(", {} new", bytes_text(event.at("new_bytes").get<std::uint64_t>()));
    return text;
}

int list_history(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "history", "NAME", 1, 1);
    const json all =
        connect(invocation, context)->call("GET", target_of({"functions", invocation.operands.front(), "history"}));
    if (flag(invocation, "json")) {
        print_json(context, all);
        return 0;
    }
    Table table({"WHEN", "WHO", "WHAT", "CHANGE", "MESSAGE"});
    for (const json& event : all.at("events")) {
        const std::string what = event.at("action").get<std::string>() + " " + event.at("subject").get<std::string>();
        table.add({ago(event.at("time").get<std::string>()), tinykvm::printable(author_text(event.at("author"))),
                   tinykvm::printable(what), tinykvm::printable(change_text(event)),
                   tinykvm::printable(event.at("message").get<std::string>())});
    }
    table.print(invocation, context);
    return 0;
}

} // namespace

Command history_command() {
    return {.name = "history",
            .synopsis = "NAME",
            .summary = "list who changed a function, when and why",
            .operands = Operands::ours,
            .options = options({kNoHeader}),
            .action = list_history,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
