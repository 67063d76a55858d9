// kvmserver list, kvmserver describe: show what is deployed.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

constexpr OptionSpec kSort{.name = "sort",
                           .kind = Kind::text,
                           .group = "Options",
                           .value = "name|created|changed|versions",
                           .fallback = "name",
                           .help = "order, the last and the most first"};

constexpr OptionSpec kLimit{.name = "limit",
                            .kind = Kind::text,
                            .group = "Options",
                            .value = "N",
                            .help = "at most so many functions, the first by name"};
constexpr OptionSpec kAfter{.name = "after",
                            .kind = Kind::text,
                            .group = "Options",
                            .value = "NAME",
                            .help = "only functions whose names come after this one: the next page"};

void sort_by(std::vector<json>& functions, const std::string& key) {
    if (key != "name" && key != "created" && key != "changed" && key != "versions")
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("--sort: '{}' is none of name, created, changed, versions", key));
    if (key == "name") // the order of the reply
        return;
    const std::string member = key == "versions" ? key : key + "_ms";
    std::ranges::stable_sort(functions, [&](const json& a, const json& b) { return a.at(member) > b.at(member); });
}

// What a daemon knows of functions.
struct Running {
    bool known = false; // there is a daemon, and it tells
    std::set<std::string> failing, unsaved, suspended, ready;
    std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> requests; // by function and version
};

// Of the functions from the one after `after` to `until`, which are the ones of a page.
Running running(Connection& platform, const std::string& after, const std::string& until) {
    Running running;
    try {
        const json reply =
            platform.call("GET", fmt::format("/v1/live?running=1&after={}&until={}", encoded(after), encoded(until)));
        for (const json& one : reply.at("live"))
            (one.at("state") == "failing"     ? running.failing
             : one.at("state") == "unsaved"   ? running.unsaved
             : one.at("state") == "suspended" ? running.suspended
                                              : running.ready)
                .insert(one.at("function"));
        for (const json& one : reply.at("counted"))
            running.requests[{one.at("function"), one.at("version")}] = one.at("requests");
        running.known = true;
    } catch (const tinykvm::UserError&) { // no daemon, or the token may not
    }
    return running;
}

struct State {
    std::string word;                      // failing, unsaved, suspended, ready, or idle without a live version
    std::optional<std::uint64_t> requests; // of live versions; known by a daemon
};

State state_of(const json& function, const Running& running) {
    const std::string name = function.at("name");
    State state{.word = function.at("live").empty() ? "idle" : "ready", .requests = {}};
    if (running.failing.contains(name))
        state.word = "failing";
    else if (running.unsaved.contains(name))
        state.word = "unsaved";
    else if (running.suspended.contains(name) && !running.ready.contains(name))
        state.word = "suspended";
    for (const json& live : function.at("live"))
        if (running.known) {
            const auto counted = running.requests.find({name, live.at("version").get<std::uint64_t>()});
            state.requests = state.requests.value_or(0) + (counted == running.requests.end() ? 0 : counted->second);
        }
    if (function.value("keeps_state", false)) // absent: an older daemon
        state.word += ", keeps state";
    if (function.contains("moved"))
        state.word = "moved";
    return state;
}

std::string target_of_page(const Invocation& invocation) {
    std::string target = "/v1/functions";
    for (const char* const name : {"limit", "after"})
        if (const auto value = text(invocation, name))
            target += fmt::format("{}{}={}", target.find('?') == target.npos ? '?' : '&', name, encoded(*value));
    return target;
}

// The first route as a URL, or the first address of a TCP function, and how many more there are.
std::string where(const json& function, Connection& platform) {
    const json listen = function.value("listen", json::array()); // an older daemon has none
    const json& all = listen.empty() ? function.at("routes") : listen;
    if (all.empty())
        return {};
    const std::string first = all.front();
    const std::string more = all.size() > 1 ? fmt::format(" and {} more", all.size() - 1) : "";
    if (!listen.empty())
        return "tcp://" + first + more;
    return (platform.serves() ? platform.public_url(first).text() : first) + more;
}

int list(const char* name, const Invocation& invocation, Context& context) {
    expect_operands(invocation, name, "", 0, 0);
    const std::string key = text(invocation, "sort").value_or("name");
    const auto limit = text(invocation, "limit");
    if (limit && key != "name")
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 "--limit: pages are by name; leave out --sort, or list all functions");
    const auto platform = connect(invocation, context);
    json reply{{"functions", json::array()}};
    if (!platform->empty())
        reply = platform->call("GET", target_of_page(invocation));
    std::vector<json> functions = std::move(reply["functions"]).get<std::vector<json>>();
    sort_by(functions, key);
    if (flag(invocation, "json")) {
        reply["functions"] = functions;
        print_json(context, reply);
        return 0;
    }
    const std::string after = text(invocation, "after").value_or("");
    const Running live = functions.empty() ? Running()
                         : key == "name"   ? running(*platform, after, functions.back().at("name"))
                                           : running(*platform, after, "~"); // behind all names
    Table table({"NAME", "LIVE", "STATE", "REQUESTS", "CHANGED", platform->serves() ? "URL" : "ROUTE"});
    for (const json& function : functions) {
        const State state = state_of(function, live);
        table.add({function.at("name"), live_text(function.at("live")), state.word,
                   state.requests ? fmt::to_string(*state.requests) : "",
                   ago(function.at("changed").get<std::string>()), where(function, *platform)});
    }
    table.print(invocation, context);
    if (functions.empty() && !flag(invocation, "quiet"))
        context.err << (!after.empty() ? fmt::format("no functions after {}\n", tinykvm::brief(after))
                        : platform->serves()
                            ? fmt::format("no functions yet on {}: kvmserver deploy\n", platform->shown())
                            : fmt::format("no functions in the store {}, which no daemon serves: "
                                          "kvmserver deploy; KVMSERVER_STORE or --store names another\n",
                                          platform->shown()));
    if (reply.contains("next") && !flag(invocation, "quiet"))
        context.err << fmt::format("there are more: kvmserver {} --limit {} --after {}\n", name, *limit,
                                   reply.at("next").get<std::string>());
    return 0;
}

int describe(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "describe", "NAME", 1, 1);
    const auto platform = connect(invocation, context);
    const json function = platform->call("GET", target_of({"functions", invocation.operands.front()}));
    if (flag(invocation, "json")) {
        print_json(context, function);
        return 0;
    }
    const auto line = [&](const char* name, const std::string& value) {
        context.out << fmt::format("{:<10} {}\n", name, value);
    };
    line("name", function.at("name"));
    for (const json& route : function.at("routes"))
        line("route", platform->serves()
                          ? fmt::format("{} {}", route.get<std::string>(), platform->public_url(route).text())
                          : route.get<std::string>());
    for (const json& address : function.value("listen", json::array()))
        line("listen", "tcp://" + address.get<std::string>());
    for (const json& version : function.at("live_versions"))
        if (const json storage = version.at("manifest").value(json::json_pointer("/function/storage/function"), json());
            storage.is_string())
            line("storage",
                 fmt::format("{} (v{})", storage.get<std::string>(), version.at("version").get<std::uint64_t>()));
    for (const json& version : function.at("live_versions"))
        line("live",
             fmt::format("v{} {}% {} {}", version.at("version").get<std::uint64_t>(),
                         version.at("percent").get<unsigned>(), bytes_text(version.at("bytes").get<std::uint64_t>()),
                         version.at("snapshot").get<std::string>()));
    line("versions", fmt::to_string(function.at("versions").get<std::uint64_t>()));
    for (const auto& [name, value] : function.at("env").items())
        line("env", name + "=" + value.get<std::string>());
    for (const json& name : function.at("secrets"))
        line("secret", name);
    if (function.contains("moved"))
        line("moved", fmt::format("to {}, where it is v{}; requests go to {}{}",
                                  function.at("moved").at("to").get<std::string>(),
                                  function.at("moved").at("version").get<std::uint64_t>(),
                                  function.at("moved").at("forward").get<std::string>(),
                                  function.at("moved").at("confirmed").get<bool>() ? "" : " once it confirms"));
    line("created", function.at("created"));
    line("changed", function.at("changed"));
    const std::string& asked = invocation.operands.front();
    // Nothing is between a name without its last character and the name but what begins with the former.
    const State state = state_of(function, running(*platform, asked.substr(0, asked.size() - 1), asked));
    context.out << fmt::format("{} {} {}{}\n", function.at("name").get<std::string>(), live_text(function.at("live")),
                               state.word, state.requests ? fmt::format(" {} req", *state.requests) : "");
    return 0;
}

} // namespace

Command list_command(const char* name) {
    return {
        .name = name,
        .synopsis = "",
        .summary = std::string_view(name) == "ls" ? "the same as list" : "list the functions",
        .operands = Operands::none,
        .options = options({kSort, kLimit, kAfter, kNoHeader}),
        .action = [name](const Invocation& invocation, Context& context) { return list(name, invocation, context); }};
}

Command describe_command() {
    return {.name = "describe",
            .synopsis = "NAME",
            .summary = "tell all about a function",
            .operands = Operands::ours,
            .options = options(),
            .action = describe,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
