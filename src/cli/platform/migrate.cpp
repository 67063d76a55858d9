// kvmserver migrate: another daemon serves a function from now on, and goes on with the states of its machines.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/remote_connection.hpp"
#include "src/common/environment.hpp"
#include "src/remote/remotes.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr OptionSpec kTo{.name = "to",
                         .kind = Kind::text,
                         .group = "Options",
                         .value = "REMOTE",
                         .help = "the other daemon: a name of `kvmserver remote list`, or https://HOST:PORT"};
constexpr OptionSpec kToTokenFile{.name = "to-token-file",
                                  .kind = Kind::text,
                                  .group = "Options",
                                  .value = "FILE",
                                  .help = "its token, in a file of mode 0600 (else that of `kvmserver login`)"};
constexpr OptionSpec kToCacert{.name = "to-cacert",
                               .kind = Kind::text,
                               .group = "Options",
                               .value = "FILE",
                               .help = "authorities to trust there, PEM, on this daemon's host"};
constexpr OptionSpec kForward{
    .name = "forward",
    .kind = Kind::text,
    .group = "Options",
    .value = "URL",
    .help = "its public listener, as this daemon reaches it: http://HOST:PORT, https://HOST:PORT"};

constexpr OptionSpec kWait{.name = "wait",
                           .kind = Kind::seconds,
                           .group = "Options",
                           .value = "SECONDS",
                           .fallback = "2",
                           .help = "how long new requests may wait for those under way to end"};

// The other daemon's, if this one is asked without a token.
std::string token_for(const Invocation& invocation, const remote::Server& there) {
    if (const auto file = text(invocation, "to-token-file"))
        return remote::token_from_file(*file);
    if (!there.token.empty() || text(invocation, "remote"))
        return there.token;
    return environment_variable("KVMSERVER_TOKEN");
}

int migrate(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "migrate", "NAME --to REMOTE", 1, 1);
    const auto to = text(invocation, "to");
    if (!to)
        throw UserError(ExitCode::usage, "--to REMOTE is missing: where the function is to be");
    remote::Server there = server_named(*to);
    if (const auto authorities = text(invocation, "to-cacert"))
        there.ca_file = std::filesystem::absolute(*authorities);
    remote::check_url(there.url);
    json body{{"to", there.url}, {"token", token_for(invocation, there)}, {"ca_file", there.ca_file}};
    if (const auto forward = text(invocation, "forward"))
        body["forward"] = *forward;
    if (const auto wait = seconds_option(invocation, "wait", 600))
        body["wait_ms"] = static_cast<std::uint64_t>(*wait * 1000);
    const std::string& name = invocation.operands.front();
    const json done = connect(invocation, context)->call("POST", target_of({"functions", name, "migrate"}), body);
    const bool confirmed = done.at("confirmed").get<bool>();
    if (flag(invocation, "json")) {
        print_json(context, done);
    } else {
        const json& timing = done.at("timing_ms");
        context.out << fmt::format("{} v{} -> {}\n", name, done.at("version_there").get<std::uint64_t>(),
                                   done.at("to").get<std::string>());
        if (!flag(invocation, "quiet"))
            context.err << fmt::format("{} of its snapshot sent, {} of what it keeps; requests waited for {:.0f} ms\n",
                                       bytes_text(done.at("snapshot_bytes_sent").get<std::uint64_t>()),
                                       bytes_text(done.at("state_bytes").get<std::uint64_t>()),
                                       std::max(timing.at("held").get<double>(), timing.at("ahead").get<double>()));
    }
    if (confirmed)
        return 0;
    throw UserError(
        ExitCode::unreachable,
        fmt::format("{} is no longer served here, but {} has not confirmed that it serves it: the daemon asks "
                    "again until it does",
                    name, there.url));
}

} // namespace

Command migrate_command() {
    return {.name = "migrate",
            .synopsis = "NAME --to REMOTE",
            .summary = "let another daemon serve a function, with what its machines keep",
            .operands = Operands::ours,
            .options = options({kTo, kToTokenFile, kToCacert, kForward, kWait}),
            .action = migrate,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
