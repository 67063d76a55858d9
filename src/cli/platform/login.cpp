// kvmserver login, kvmserver remote: remote daemons and their tokens.
#include <fmt/format.h>

#include <unistd.h>

#include <cstdlib>

#include "src/cli/help/nearest.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/hidden.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"
#include "src/remote/client.hpp"
#include "src/remote/remotes.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;
using remote::Remotes;
using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr const char* kRemoteSynopsis = "list|remove [NAME]";
constexpr OptionSpec kTokenStdin{
    .name = "token-stdin", .group = "Options", .help = "read the token from stdin (else $KVMSERVER_TOKEN, else ask)"};
constexpr OptionSpec kRemoteName{.name = "name",
                                 .kind = Kind::text,
                                 .group = "Options",
                                 .value = "NAME",
                                 .help = "what to call it in --remote (the URL's host)"};

std::string token_from(const Invocation& invocation, Context& context) {
    if (flag(invocation, "token-stdin"))
        return read_line();
    if (const auto file = text(invocation, "token-file"))
        return remote::token_from_file(absolute_path(context.folder, *file));
    if (const char* const token = std::getenv("KVMSERVER_TOKEN"); token && *token)
        return token;
    if (::isatty(STDIN_FILENO) == 0)
        throw UserError(ExitCode::usage, "login needs a token: --token-stdin, --token-file FILE or $KVMSERVER_TOKEN");
    return ask_hidden("Token: ", context);
}

std::string default_name(const std::string& url) {
    std::string host = url.substr(url.find("://") + 3);
    host = host.substr(0, host.find('/'));
    if (host.starts_with('['))
        return host.substr(1, host.find(']') - 1);
    return host.substr(0, host.find(':'));
}

int login(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "login", "URL", 1, 1);
    remote::Server server;
    server.url = invocation.operands.front();
    remote::check_url(server.url);
    Remotes remotes(Remotes::default_file());
    const std::string name = text(invocation, "name").value_or(default_name(server.url));
    if (const auto known = remotes.find(name); known && known->url != server.url && !text(invocation, "name"))
        throw UserError(ExitCode::conflict,
                        fmt::format("'{}' is {} already: give this one another --name", name, known->url));
    server.token = token_from(invocation, context);
    if (server.token.empty() || server.token.find_first_of(" \r\n\t") != std::string::npos)
        throw UserError(ExitCode::usage, "login: the token is empty or no token");
    if (const auto file = text(invocation, "cacert"))
        server.ca_file = absolute_path(context.folder, *file);
    if (const auto seconds = timeout(invocation))
        server.timeout_seconds = *seconds;
    const remote::Remote kept{server.url, server.token, server.ca_file};
    const json info = remote::Client(std::move(server)).call("GET", "/v1/info"); // check the token before it is stored
    remotes.set(name, kept);
    std::string scopes;
    for (const json& scope : info.at("caller").at("scopes"))
        scopes += (scopes.empty() ? "" : ", ") + scope.get<std::string>();
    if (flag(invocation, "json"))
        print_json(context, {{"remote", name}, {"url", kept.url}, {"caller", info.at("caller")}});
    else
        context.out << fmt::format("Logged in to {} as {} ({}); use it with --remote {}\n", kept.url,
                                   info.at("caller").at("name").get<std::string>(), scopes, name);
    return 0;
}

int list_remotes(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "remote list", "", 1, 1);
    const Remotes remotes(Remotes::default_file());
    auto all = json::array();
    Table table({"NAME", "URL"});
    for (const auto& [name, remote] : remotes.all()) { // never print their tokens
        all.push_back({{"name", name}, {"url", remote.url}});
        table.add({name, remote.url});
    }
    if (flag(invocation, "json"))
        print_json(context, {{"remotes", all}});
    else
        table.print(invocation, context);
    if (all.empty() && !flag(invocation, "json") && !flag(invocation, "quiet"))
        context.err << "no remotes yet: kvmserver login https://HOST:PORT\n";
    return 0;
}

int remove_remote(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "remote remove", "NAME", 2, 2);
    const std::string& name = invocation.operands[1];
    if (!Remotes(Remotes::default_file()).remove(name))
        throw UserError(ExitCode::not_found,
                        fmt::format("there is no remote '{}': kvmserver remote list lists them", name));
    if (flag(invocation, "json"))
        print_json(context, {{"removed", name}});
    else
        context.out << "Removed " << name << '\n';
    return 0;
}

int remote_action(const Invocation& invocation, Context& context) {
    const std::string action = invocation.operands.empty() ? "" : invocation.operands.front();
    if (action == "list")
        return list_remotes(invocation, context);
    if (action == "remove")
        return remove_remote(invocation, context);
    throw UserError(ExitCode::usage, fmt::format("usage: kvmserver remote {}{}", kRemoteSynopsis,
                                                 did_you_mean(action, {"list", "remove"})));
}

} // namespace

Command login_command() {
    return {.name = "login",
            .synopsis = "URL",
            .summary = "keep the token of a daemon elsewhere",
            .operands = Operands::ours,
            .options = {kTokenStdin, kRemoteName, kTokenFile, kCacert, kTimeout, kJson, kQuiet},
            .action = login};
}

Command remote_command() {
    return {.name = "remote",
            .synopsis = kRemoteSynopsis,
            .summary = "the daemons that login knows",
            .operands = Operands::ours,
            .options = {kJson, kQuiet, kNoHeader},
            .action = remote_action,
            .words = {Words::none, Words::remotes}};
}

} // namespace kvmserver::cli
