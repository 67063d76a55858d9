// kvmserver env, kvmserver secret: set, list and unset values.
#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "src/cli/events/json_events.hpp"
#include "src/cli/help/nearest.hpp"
#include "src/cli/platform/hidden.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;

constexpr OptionSpec kStdin{.name = "stdin", .group = "Options", .help = "read the value from stdin"};
constexpr OptionSpec kFor{.name = "for",
                          .kind = Kind::repeated,
                          .group = "Options",
                          .value = "FUNCTIONS",
                          .help = "of a secret for all: tenants' functions that may have it: NAME, PREFIX-* or -, "
                                  "which is none (repeatable; without --stdin the value stays)"};
constexpr const char* kEnvSynopsis = "set|list|unset NAME [K[=V]]";
constexpr const char* kSecretSynopsis = "set|list|unset [NAME] [SECRET]";

// All of stdin without the final line break.
std::string value_from_stdin() {
    constexpr std::size_t kLongestFile = 1 << 20; // the store limits values further
    std::string value = read_stdin(kLongestFile + 1);
    if (value.size() > kLongestFile)
        usage_error("the value on stdin is too long");
    if (value.ends_with('\n'))
        value.pop_back();
    return value;
}

const std::string& action_of(const Invocation& invocation, const char* command, const char* synopsis) {
    if (invocation.operands.empty())
        usage_error(fmt::format("usage: kvmserver {} {}", command, synopsis));
    const std::string& action = invocation.operands.front();
    if (action != "set" && action != "list" && action != "unset")
        usage_error(fmt::format("{}: '{}' is none of set, list, unset{}", command, action,
                                did_you_mean(action, {"set", "list", "unset"})));
    if (action != "set" && flag(invocation, "stdin"))
        usage_error(fmt::format("--stdin is for {} set", command));
    return action;
}

// `reply`: of the API, with the warnings of daemons that have some.
int done(const Invocation& invocation, Context& context, const std::string& function, const std::string& name, bool set,
         const nlohmann::json& reply) {
    const nlohmann::json warnings = reply.value("warnings", nlohmann::json::array());
    if (flag(invocation, "json")) {
        nlohmann::json object{{"function", function}, {set ? "set" : "unset", name}};
        if (!warnings.empty())
            object["warnings"] = warnings;
        print_json(context, object);
        return 0;
    }
    for (const nlohmann::json& warning : warnings)
        warn(context, tinykvm::printable(warning.get<std::string>()));
    context.out << (set ? "Set " : "Unset ") << name << '\n';
    return 0;
}

nlohmann::json change(Connection& platform, const std::string& target, const std::optional<std::string>& value) {
    return value ? platform.call("PUT", target, {{"value", *value}}) : platform.call("DELETE", target);
}

int env(const Invocation& invocation, Context& context) {
    const std::string& action = action_of(invocation, "env", kEnvSynopsis);
    const std::size_t operands = action == "list" ? 2 : 3;
    expect_operands(invocation, "env", kEnvSynopsis, operands, operands);
    const std::string& function = invocation.operands[1];
    if (action == "list") {
        const auto list = connect(invocation, context)->call("GET", target_of({"functions", function, "env"}));
        if (flag(invocation, "json")) {
            print_json(context, list);
            return 0;
        }
        for (const auto& [name, value] : list.at("env").items())
            context.out << name << '=' << value.get<std::string>() << '\n';
        return 0;
    }
    std::string name = invocation.operands[2];
    std::optional<std::string> value;
    const auto equals = name.find('=');
    if (action == "unset") {
        if (equals != name.npos)
            usage_error("env unset takes the variable's name alone");
    } else if (flag(invocation, "stdin")) {
        if (equals != name.npos)
            usage_error("give the value either on stdin or as K=V");
        value = value_from_stdin();
    } else {
        if (equals == name.npos)
            usage_error("env set needs K=V, or K and --stdin");
        value = name.substr(equals + 1);
        name.resize(equals);
    }
    const auto reply = change(*connect(invocation, context), target_of({"functions", function, "env", name}), value);
    return done(invocation, context, function, name, value.has_value(), reply);
}

int list_secrets(const Invocation& invocation, Context& context, const std::string& function) {
    const auto list =
        connect(invocation, context)
            ->call("GET", function.empty() ? target_of({"secrets"}) : target_of({"functions", function, "secrets"}));
    if (flag(invocation, "json")) {
        print_json(context, list);
        return 0;
    }
    Table table({"NAME", "CHANGED", "FOR"});
    for (const nlohmann::json& secret : list.at("secrets")) {
        std::string grants;
        for (const nlohmann::json& pattern : secret.value("for", nlohmann::json::array()))
            grants += (grants.empty() ? "" : ",") + pattern.get<std::string>();
        table.add({secret.at("name"), ago(secret.at("changed").get<std::string>()), grants});
    }
    table.print(invocation, context);
    return 0;
}

// Sets a secret for all functions: the functions that are granted it, and its value if there is a new one.
int grant(const Invocation& invocation, Context& context, const std::string& name,
          const std::vector<std::string>& patterns) {
    nlohmann::json body{{"for", patterns}};
    if (patterns == std::vector<std::string>{"-"})
        body["for"] = nlohmann::json::array();
    if (flag(invocation, "stdin"))
        body["value"] = value_from_stdin();
    const auto reply = connect(invocation, context)->call("PUT", target_of({"secrets", name}), body);
    return done(invocation, context, "", name, true, reply);
}

// Lists the secrets for all functions, which is what `list` without NAME means.
int secret(const Invocation& invocation, Context& context) {
    const std::string& action = action_of(invocation, "secret", kSecretSynopsis);
    const std::size_t least = action == "list" ? 1 : 2;
    expect_operands(invocation, "secret", kSecretSynopsis, least, least + 1);
    const std::string function = invocation.operands.size() == least + 1 ? invocation.operands[1] : "";
    if (action == "list")
        return list_secrets(invocation, context, function);
    const std::string& name = invocation.operands.back();
    if (name.find('=') != name.npos)
        usage_error("a secret's value is not taken from the command line, where others can see it: use --stdin");
    const auto grants = invocation.settings.find("for");
    if (grants != invocation.settings.end()) {
        if (action != "set" || !function.empty())
            usage_error("--for is for secret set of a secret for all functions");
        return grant(invocation, context, name, grants->second.values);
    }
    std::optional<std::string> value;
    if (action == "set") {
        if (flag(invocation, "stdin"))
            value = value_from_stdin();
        else if (::isatty(STDIN_FILENO) != 0)
            value = ask_hidden(fmt::format("Value of {}: ", name), context);
        else
            usage_error("secret set asks on a terminal, and there is none: give the value with --stdin");
    }
    const auto reply = change(
        *connect(invocation, context),
        function.empty() ? target_of({"secrets", name}) : target_of({"functions", function, "secrets", name}), value);
    return done(invocation, context, function, name, value.has_value(), reply);
}

} // namespace

Command env_command() {
    return {.name = "env",
            .synopsis = kEnvSynopsis,
            .summary = "environment of a function",
            .operands = Operands::ours,
            .options = options({kStdin}),
            .action = env,
            .words = {Words::none, Words::functions}};
}

Command secret_command() {
    return {.name = "secret",
            .synopsis = kSecretSynopsis,
            .summary = "secrets of a function, or of all",
            .operands = Operands::ours,
            .options = options({kStdin, kFor, kNoHeader}),
            .action = secret,
            .words = {Words::none, Words::functions}};
}

} // namespace kvmserver::cli
