// kvmserver token: creates, lists and revokes tokens.
#include <fmt/format.h>

#include "src/ceilings/file.hpp"
#include "src/cli/help/nearest.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"
#include "src/ops/reference.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr const char* kTokenSynopsis = "create|list|revoke [NAME]";
constexpr OptionSpec kScope{.name = "scope",
                            .kind = Kind::repeated,
                            .group = "Options",
                            .value = "read|invoke|deploy|admin",
                            .help = "what it may do (repeatable; deploy may read, admin may everything)"};
constexpr OptionSpec kPrefix{.name = "prefix",
                             .kind = Kind::text,
                             .group = "Options",
                             .value = "TEXT",
                             .help = "only for functions whose names begin with it: team-"};
constexpr OptionSpec kRoute{.name = "route",
                            .kind = Kind::repeated,
                            .group = "Options",
                            .value = "ROUTE",
                            .help = "with --prefix: it may claim HOST, /PATH/* or HOST/PATH/*, beside NAME.localhost"};
constexpr OptionSpec kExpires{.name = "expires",
                              .kind = Kind::text,
                              .group = "Options",
                              .value = "TIME",
                              .help = "valid for so long: 90s, 10m, 12h, 30d (for ever)"};

constexpr OptionSpec kCeilings{
    .name = "ceilings",
    .kind = Kind::text,
    .group = "Options",
    .value = "FILE",
    .help = "what its deploys are granted at most, TOML (docs/SERVE.md; with --prefix little by default)"};

std::uint64_t seconds_of(const std::string& text) {
    const std::string units = "smhd";
    const std::uint64_t lengths[] = {1, 60, 3600, 86400};
    const auto unit = text.empty() ? units.npos : units.find(text.back());
    if (unit == units.npos)
        throw UserError(ExitCode::usage, fmt::format("--expires: '{}': write 90s, 10m, 12h or 30d", text));
    const std::uint64_t count = ops::whole_number(text.substr(0, text.size() - 1), "--expires");
    return count > 1'000'000'000 ? count : count * lengths[unit];
}

int create(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "token create", "NAME", 2, 2);
    const auto scopes = invocation.settings.find("scope");
    if (scopes == invocation.settings.end())
        throw UserError(ExitCode::usage, "token create needs --scope read, invoke, deploy or admin");
    json body{{"name", invocation.operands[1]}, {"scopes", scopes->second.values}};
    if (const auto prefix = text(invocation, "prefix"))
        body["prefix"] = *prefix;
    if (const auto routes = invocation.settings.find("route"); routes != invocation.settings.end())
        body["routes"] = routes->second.values;
    if (const auto expires = text(invocation, "expires"))
        body["expires_in"] = seconds_of(*expires);
    if (const auto file = text(invocation, "ceilings"))
        body["ceilings"] = to_json(CeilingsFile::read_single(absolute_path(context.folder, *file)));
    const json made = connect(invocation, context)->call("POST", target_of({"tokens"}), body);
    if (flag(invocation, "json")) {
        print_json(context, made);
        return 0;
    }
    if (!flag(invocation, "quiet"))
        context.err << "This token is shown once. Whoever has it may use it.\n";
    context.out << made.at("token").get<std::string>() << '\n';
    return 0;
}

std::string joined(const json& texts) {
    std::string all;
    for (const json& text : texts)
        all += (all.empty() ? "" : ",") + text.get<std::string>();
    return all;
}

int list_tokens(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "token list", "", 1, 1);
    const json all = connect(invocation, context)->call("GET", target_of({"tokens"}));
    if (flag(invocation, "json")) {
        print_json(context, all);
        return 0;
    }
    Table table({"NAME", "SCOPES", "FUNCTIONS", "CREATED", "EXPIRES", "USED", "ROUTES"});
    for (const json& token : all.at("tokens")) {
        const std::string prefix = token.at("prefix");
        const std::string functions = prefix.empty()          ? "all"
                                      : prefix.ends_with('-') ? prefix + "*"
                                                              : fmt::format("{0},{0}-*", prefix);
        table.add({token.at("name"), joined(token.at("scopes")), functions, ago(token.at("created").get<std::string>()),
                   token.contains("expires") ? until(token["expires"]) : "never",
                   token.contains("last_used") ? ago(token["last_used"].get<std::string>()) : "never",
                   joined(token.value("routes", json::array()))});
    }
    table.print(invocation, context);
    return 0;
}

int revoke(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "token revoke", "NAME", 2, 2);
    const json done = connect(invocation, context)->call("DELETE", target_of({"tokens", invocation.operands[1]}));
    if (flag(invocation, "json"))
        print_json(context, done);
    else
        context.out << "Revoked " << invocation.operands[1] << '\n';
    return 0;
}

int token(const Invocation& invocation, Context& context) {
    const std::string action = invocation.operands.empty() ? "" : invocation.operands.front();
    if (action != "create")
        for (const char* option : {"scope", "prefix", "route", "expires", "ceilings"})
            if (invocation.settings.find(option) != invocation.settings.end())
                throw UserError(ExitCode::usage, fmt::format("--{} is for token create", option));
    if (action == "create")
        return create(invocation, context);
    if (action == "list")
        return list_tokens(invocation, context);
    if (action == "revoke")
        return revoke(invocation, context);
    throw UserError(ExitCode::usage, fmt::format("usage: kvmserver token {}{}", kTokenSynopsis,
                                                 did_you_mean(action, {"create", "list", "revoke"})));
}

} // namespace

Command token_command() {
    return {.name = "token",
            .synopsis = kTokenSynopsis,
            .summary = "tokens for clients elsewhere",
            .operands = Operands::ours,
            .options = options({kScope, kPrefix, kRoute, kExpires, kCeilings, kNoHeader}),
            .action = token};
}

} // namespace kvmserver::cli
