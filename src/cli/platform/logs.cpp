// kvmserver logs: shows what a function printed, and its requests.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/platform/platform.hpp"
#include "src/common/time_text.hpp"
#include "src/ops/reference.hpp"
#include "src/ops/when.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

constexpr OptionSpec kLogsOptions[] = {
    {.name = "follow", .letter = 'f', .group = "Options", .help = "go on with what comes"},
    {.name = "since",
     .kind = Kind::text,
     .group = "Options",
     .value = "TIME",
     .help = "not older than 10m, 2h, 3d or 2026-11-21T03:00:09Z"},
    {.name = "request", .kind = Kind::text, .group = "Options", .value = "ID", .help = "of one request"},
    {.name = "tail", .letter = 'n', .kind = Kind::count, .group = "Options", .value = "N", .help = "the last N lines"},
    {.name = "errors", .group = "Options", .help = "only failed requests, and no stdout"},
    {.name = "grep", .kind = Kind::text, .group = "Options", .value = "TEXT", .help = "only what has this text"},
    {.name = "no-requests", .group = "Options", .help = "only what was printed"},
    {.name = "previous", .group = "Options", .help = "of the version before the live one"},
    {.name = "version", .kind = Kind::text, .group = "Options", .value = "N", .help = "of this version"},
};

// The newest version older than the one with the most requests.
std::uint64_t version_before(Connection& platform, const std::string& name) {
    const json all = platform.call("GET", target_of({"functions", name, "versions"})).at("versions"); // newest first
    unsigned most = 0;
    std::uint64_t live = 0;
    for (const json& version : all)
        if (const auto percent = version.at("percent").get<unsigned>(); percent > most) {
            most = percent;
            live = version.at("version").get<std::uint64_t>();
        }
    for (const json& version : all)
        if (const auto number = version.at("version").get<std::uint64_t>(); number < live)
            return number;
    throw tinykvm::UserError(tinykvm::ExitCode::not_found, fmt::format("{} has no version before the live one", name));
}

// "=> GET /path 502 program_failed 1.2 ms 0123456789abcdef"
std::string request_text(const json& request) {
    return fmt::format("=> {} {:.1f} ms {}", request.value("text", ""), request.value("total_us", 0.0) / 1000,
                       request.value("request_id", ""));
}

// Prints NDJSON lines that arrive in pieces.
class Printer {
public:
    Printer(Context& context, bool as_json) : context_(context), json_(as_json) {}
    bool take(std::string_view bytes) {
        pending_ += bytes;
        std::size_t at = 0;
        for (std::size_t end; (end = pending_.find('\n', at)) != pending_.npos; at = end + 1)
            print(pending_.substr(at, end - at));
        pending_.erase(0, at);
        context_.out.flush();
        return static_cast<bool>(context_.out); // false when the reader of our output has gone
    }
    bool only_requests() const { return requests_ != 0 && lines_ == 0; }

private:
    void print(const std::string& line) {
        if (line.empty()) // a keep-alive
            return;
        const json object = json_ ? json() : json::parse(line, nullptr, false);
        if (!object.is_object()) {
            context_.out << line << '\n';
            return;
        }
        const std::string stream = object.value("stream", "");
        (stream == "request" ? requests_ : lines_) += 1;
        context_.out << fmt::format("{} v{} {}{}\n", time_text(object.value("ms", std::int64_t{0})),
                                    object.value("version", 0), stream == "daemon" ? "-- " : "",
                                    stream == "request" ? request_text(object) : object.value("text", ""));
    }
    Context& context_;
    bool json_;
    std::uint64_t lines_ = 0, requests_ = 0;
    std::string pending_;
};

int logs(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "logs", "NAME", 1, 1);
    const std::string& name = invocation.operands.front();
    const auto platform = connect(invocation, context);
    std::string target =
        target_of({"functions", name, "logs"}) + (flag(invocation, "follow") ? "?follow=1" : "?follow=0");
    if (const auto since = text(invocation, "since")) {
        ops::time_from(*since, 0); // for its error message
        target += "&since=" + encoded(*since);
    }
    if (const auto request = text(invocation, "request"))
        target += "&request_id=" + encoded(*request);
    if (!flag(invocation, "no-requests"))
        target += "&requests=1";
    if (flag(invocation, "errors"))
        target += "&errors=1";
    if (const auto grep = text(invocation, "grep"))
        target += "&grep=" + encoded(*grep);
    if (const auto tail = text(invocation, "tail"))
        target += fmt::format("&tail={}", ops::whole_number(*tail, "--tail"));
    const auto version = text(invocation, "version");
    if (version && flag(invocation, "previous"))
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "--version and --previous exclude each other");
    if (version)
        target += fmt::format("&version={}", ops::version_number(*version));
    if (flag(invocation, "previous"))
        target += fmt::format("&version={}", version_before(*platform, name));
    Printer printer(context, flag(invocation, "json"));
    platform->stream(target, [&](std::string_view bytes) { return printer.take(bytes); });
    const bool all_lines = !flag(invocation, "errors") && !text(invocation, "grep") && !text(invocation, "tail") &&
                           !text(invocation, "since");
    if (text(invocation, "request") && all_lines && printer.only_requests() && !flag(invocation, "quiet"))
        context.err << fmt::format("kvmserver: no line is known to be of this request: it printed none, or others were "
                                   "served by its process at the same time (all: kvmserver logs {})\n",
                                   name);
    return 0;
}

} // namespace

Command logs_command() {
    std::vector<OptionSpec> all(std::begin(kLogsOptions), std::end(kLogsOptions));
    for (const OptionSpec& spec : options())
        all.push_back(spec);
    return {.name = "logs",
            .synopsis = "NAME",
            .summary = "show what a function printed, and its requests",
            .operands = Operands::ours,
            .options = all,
            .action = logs,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
