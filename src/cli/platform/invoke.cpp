// kvmserver invoke: sends one request to a function, through the daemon.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "src/cli/paths.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/ops/reference.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr OptionSpec kInvokeOptions[] = {
    {.name = "request",
     .letter = 'X',
     .kind = Kind::text,
     .group = "Options",
     .value = "METHOD",
     .help = "the method (GET; POST with --data)"},
    {.name = "header",
     .letter = 'H',
     .kind = Kind::repeated,
     .group = "Options",
     .value = "NAME: VALUE",
     .help = "a header of the request (repeatable)"},
    {.name = "data",
     .letter = 'd',
     .kind = Kind::text,
     .group = "Options",
     .value = "TEXT|@FILE",
     .help = "the body; @- is stdin"},
    {.name = "path",
     .kind = Kind::text,
     .group = "Options",
     .value = "PATH",
     .fallback = "/",
     .help = "path and query of the request"},
    {.name = "version",
     .kind = Kind::text,
     .group = "Options",
     .value = "N",
     .help = "this version, live or not (by the traffic's percentages)"},
    {.name = "fail", .group = "Options", .help = "status 1 for a reply of 400 or more"},
    {.name = "timing", .group = "Options", .help = "on stderr: status, version and where the time went"},
};

std::string body_from(const std::string& data, const Context& context) {
    if (!data.starts_with('@'))
        return data;
    if (data == "@-")
        return read_stdin();
    std::ifstream file(absolute_path(context.folder, data.substr(1)), std::ios::binary);
    if (!file)
        throw UserError(ExitCode::not_found, fmt::format("--data: {} cannot be read", data.substr(1)));
    return std::string(std::istreambuf_iterator<char>(file), {});
}

void print_timing(const Connection::Raw& reply, Context& context) {
    context.err << fmt::format("status {}, v{}{}, {}\n", reply.status, reply.header("Kvmserver-Version"),
                               reply.header("Kvmserver-Cold").empty() ? "" : ", cold", reply.header("Server-Timing"));
}

int invoke(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "invoke", "NAME", 1, 1);
    const auto data = text(invocation, "data");
    std::string target = target_of({"functions", invocation.operands.front(), "invoke"});
    target += "?method=" + encoded(text(invocation, "request").value_or(data ? "POST" : "GET"));
    target += "&path=" + encoded(text(invocation, "path").value_or("/"));
    if (const auto version = text(invocation, "version"))
        target += fmt::format("&version={}", ops::version_number(*version));
    if (const auto seconds = timeout(invocation))
        target += fmt::format("&timeout={}", *seconds);
    Headers headers;
    if (const auto given = invocation.settings.find("header"); given != invocation.settings.end())
        for (const std::string& line : given->second.values) {
            if (line.find(':') == line.npos || line.find_first_of("\r\n") != line.npos)
                throw UserError(ExitCode::usage, fmt::format("--header: '{}': write NAME: VALUE", line));
            headers.emplace_back("Kvmserver-Header", line);
        }
    const std::string body = data ? body_from(*data, context) : "";
    const Connection::Raw reply = connect(invocation, context)->raw("POST", target, headers, body);
    if (flag(invocation, "timing"))
        print_timing(reply, context);
    if (flag(invocation, "json")) {
        auto list = nlohmann::json::array();
        for (const auto& [name, value] : reply.headers)
            list.push_back({name, value});
        context.out << nlohmann::json{{"status", reply.status}, {"headers", list}, {"body", reply.body}}.dump(
                           2, ' ', false, nlohmann::json::error_handler_t::replace)
                    << '\n';
    } else {
        context.out << reply.body;
    }
    return flag(invocation, "fail") && reply.status >= 400 ? 1 : 0;
}

} // namespace

Command invoke_command() {
    std::vector<OptionSpec> all(std::begin(kInvokeOptions), std::end(kInvokeOptions));
    for (const OptionSpec& spec : options())
        all.push_back(spec);
    return {.name = "invoke",
            .synopsis = "NAME",
            .summary = "send a function one request",
            .operands = Operands::ours,
            .options = all,
            .action = invoke,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
