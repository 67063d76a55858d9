// kvmserver deploy: makes a snapshot, or the program of a manifest, the live version of a function.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "src/cli/events/json_events.hpp"
#include "src/cli/options/config_file.hpp"
#include "src/cli/platform/check_manifest.hpp"
#include "src/cli/platform/held_signals.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/source.hpp"
#include "src/cli/platform/storage_function.hpp"
#include "src/cli/platform/warmup.hpp"
#include "src/ops/import.hpp"
#include "src/ops/reference.hpp"
#include "src/snapshot/reader.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

constexpr OptionSpec kDeployOptions[] = {
    {.name = "name",
     .kind = Kind::text,
     .group = "Options",
     .value = "NAME",
     .help = "the function ([function] name, else the file's or folder's name)"},
    {.name = "route",
     .kind = Kind::repeated,
     .group = "Options",
     .value = "ROUTE",
     .help = "HOST, /PATH/* or HOST/PATH/* (repeatable; [function] routes, else NAME.localhost)"},
    {.name = "if-version",
     .kind = Kind::text,
     .group = "Options",
     .value = "N",
     .help = "only when version N is live; 0: only when there is no such function"},
    kStrict,
    {.name = "strict-unique",
     .group = "Options",
     .help = "refuse a snapshot whose random values would repeat in every request"},
    {.name = "clamp",
     .group = "Options",
     .help = "what asks for more than the operator grants runs with what is granted, and is told"},
    {.name = "new-storage",
     .group = "Options",
     .help = "deploy the program of [function.storage] anew; what it keeps is lost"},
    {.name = "no-activate", .group = "Options", .help = "add the version; what is live stays live"},
};

std::string name_of(const Invocation& invocation, const Source& source) {
    if (const auto given = text(invocation, "name"))
        return *given;
    if (source.manifest && !source.manifest->name.empty())
        return source.manifest->name;
    std::string name = (source.manifest ? source.manifest->folder.filename() : source.path.stem()).string();
    if (!store::is_function_name(name))
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("'{}' cannot be a function's name: give --name", name));
    return name;
}

struct Plan {
    std::string name;
    Source source;
    json body; // of the request, without the snapshot
    bool clamp = false;
    std::unique_ptr<StorageFunction> storage; // that is deployed with it; null: none
    std::string target(bool dry_run) const {
        std::string query = dry_run ? "?dry_run=1" : "";
        if (clamp)
            query += query.empty() ? "?clamp=1" : "&clamp=1";
        return target_of({"functions", name}) + query;
    }
};

Plan plan_of(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "deploy", "[FILE]", 0, 1);
    Plan plan;
    plan.clamp = flag(invocation, "clamp");
    plan.body = {{"activate", !flag(invocation, "no-activate")}};
    add_message(invocation, plan.body);
    if (const auto version = text(invocation, "if-version"))
        plan.body["if_version"] = ops::version_number(*version);
    const std::string operand = invocation.operands.empty() ? "." : invocation.operands.front();
    plan.source = find_source(operand, context);
    // A function may have the same name.
    if (plan.source.manifest && plan.source.path.extension() == ".toml" &&
        operand.find_first_of("./") == operand.npos && !flag(invocation, "quiet"))
        context.err << fmt::format("kvmserver: {} is the folder ./{}\n", operand, operand);
    plan.name = name_of(invocation, plan.source);
    store::check_function_name(plan.name);
    if (plan.source.manifest) {
        plan.body["manifest"] = json::parse(plan.source.manifest->json);
        if (plan.source.manifest->storage) {
            plan.storage = std::make_unique<StorageFunction>(*plan.source.manifest, plan.name);
            plan.body["manifest"]["function"]["storage"]["function"] = plan.storage->name();
        }
        report_warnings(*plan.source.manifest, invocation, context);
        check_manifest(*plan.source.manifest, context);
        if (!flag(invocation, "quiet") && lacks_warmup_for_storage(*plan.source.manifest))
            context.err << "kvmserver: no warm-up: its requests cannot reach the storage; name a path that needs none "
                           "(warmup-path, or [function.hooks] health)\n";
    }
    if (flag(invocation, "new-storage") && (!plan.storage || !plan.body.at("activate").get<bool>()))
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 plan.storage ? "--new-storage excludes --no-activate: the new one would be live"
                                              : "--new-storage needs a manifest that has [function.storage] program");
    if (const auto given = invocation.settings.find("route"); given != invocation.settings.end()) {
        for (const std::string& route : given->second.values)
            store::Route::parse(route); // find errors before anything else
        plan.body["routes"] = given->second.values;
    }
    return plan;
}

// Prints the repeats that were found when the snapshot was made.
void report_repeats(const Invocation& invocation, const SnapshotReader& snapshot, const std::filesystem::path& file,
                    Context& context) {
    const auto& repeats = snapshot.state().repeats;
    if (!repeats.empty() && flag(invocation, "strict-unique"))
        throw tinykvm::UserError(
            tinykvm::ExitCode::failure,
            fmt::format("--strict-unique: {}; it is not stored (docs/UNIQUENESS.md)", repeats.front()));
    for (const std::string& repeat : repeats)
        warn(context, fmt::format("{}: {} (docs/UNIQUENESS.md)", file.filename().string(), tinykvm::brief(repeat)));
}

void print_routes(const json& change, std::ostream& out) {
    const json &before = change.at("routes_before"), &after = change.at("routes");
    const auto in = [](const json& routes, const json& route) {
        return std::ranges::find(routes, route) != routes.end();
    };
    for (const json& route : after)
        if (!in(before, route))
            out << "+ route " << route.get<std::string>() << '\n';
    for (const json& route : before)
        if (!in(after, route))
            out << "- route " << route.get<std::string>() << '\n';
}

void print_difference(const json& change, std::ostream& out) {
    print_routes(change, out);
    for (const json& address : change.value("listen", json::array()))
        out << "+ listen " << address.get<std::string>() << '\n';
    const json &before = change.at("env_before"), &after = change.at("env");
    for (const auto& [name, value] : after.items())
        if (!before.contains(name) || before.at(name) != value)
            out << "+ env " << name << '=' << value.get<std::string>() << '\n';
    for (const auto& [name, value] : before.items())
        if (!after.contains(name))
            out << "- env " << name << '\n';
}

// What an owner would not expect. `change`: what a dry run says.
void report_replaced(const json& change, const Plan& plan, bool quiet, Context& context) {
    std::string names;
    for (const json& name : change.value("env_replaced", json::array())) // daemons from before it send none
        names += (names.empty() ? "" : ", ") + name.get<std::string>();
    if (!names.empty())
        warn(context, fmt::format("{}: [function.env] of the manifest replaces what was set with env set or unset: {}",
                                  plan.name, names));
    if (quiet)
        return;
    const json &before = change.at("routes_before"), &after = change.at("routes");
    for (const json& route : before)
        if (std::ranges::find(after, route) == after.end())
            context.err << fmt::format("kvmserver: {} is no longer at {}\n", plan.name, route.get<std::string>());
}

// Without the storage that is still to be deployed.
json body_for_checks(const Plan& plan, Connection& platform) {
    json body = plan.body;
    if (plan.storage && !plan.storage->exists(platform))
        body["manifest"]["function"].erase("storage");
    return body;
}

// Does not build, since a build may change anything.
int dry_run(const Invocation& invocation, Context& context, const Plan& plan, Connection& platform) {
    if (!plan.source.manifest) {
        const SnapshotReader snapshot = SnapshotReader::open(plan.source.path);
        snapshot.verify();
        report_repeats(invocation, snapshot, plan.source.path, context);
    } else if (flag(invocation, "strict-unique")) {
        warn(context, "--strict-unique is looked at when the program is built, which --dry-run does not");
    }
    const json change = platform.call("PUT", plan.target(true), body_for_checks(plan, platform));
    report_replaced(change, plan, true, context); // the difference has the routes
    if (flag(invocation, "json")) {
        print_result(context, change);
        return 0;
    }
    const std::string before = live_text(change.at("before"));
    print_difference(change, context.out);
    if (plan.storage && !plan.storage->is_live(platform))
        context.out << "+ storage " << plan.storage->name() << '\n';
    context.out << fmt::format("{} {} -> {} (dry run: nothing was built, booted or stored)\n", plan.name, before,
                               change.at("activate").get<bool>() ? "the new version" : before);
    return 0;
}

// `what`: name and version. `result`: of the deploy.
void print_live(Connection& platform, const std::string& what, const json& result, bool is_tcp, bool quiet,
                Context& context) {
    const json& routes = result.at("routes");
    if (!platform.serves()) {
        context.out << what << " stored; not served: start kvmserver serve\n";
        return;
    }
    // A daemon from before TCP functions sends none.
    if (const json listen = result.value("listen", json::array()); !listen.empty()) {
        context.out << what << " live";
        for (const json& address : listen)
            context.out << " tcp://" << address.get<std::string>();
        context.out << '\n';
        return;
    }
    if (is_tcp) {
        context.out << what << " live, for functions whose storage it is\n";
        return;
    }
    if (routes.empty()) {
        context.out << what << " live, without a route: kvmserver invoke reaches it\n";
        return;
    }
    const PublicUrl url = platform.public_url(routes.front());
    context.out << fmt::format("{} live {}\n", what, url.text());
    const bool is_new = result.at("version") == 1; // whoever deploys again knows how to reach it
    if (const std::string by_address = url_by_address(url); is_new && !quiet && !by_address.empty())
        context.err << fmt::format(
            "kvmserver: names below .localhost do not resolve here; curl and browsers know them. "
            "Other programs use {} with the header Host: {}\n",
            by_address, store::Route::parse(routes.front().get<std::string>()).host);
}

// At once, since a warm-up may follow. What it says is in the result, too.
void tell_live(Connection& platform, bool activate, json& result, JsonEvents& events) {
    result["served"] = activate && platform.serves();
    if (const json& routes = result.at("routes"); activate && platform.serves() && !routes.empty())
        result["url"] = platform.public_url(routes.front()).text();
    JsonEvents::Object object{{"event", activate ? "live" : "stored"}};
    for (const char* const key : {"name", "version", "etag", "live", "routes", "listen", "snapshot", "served", "url"})
        if (result.contains(key))
            object[key] = result.at(key);
    events.emit(object);
}

// --strict-unique, of a snapshot that was built. The build has printed what repeats already.
void require_unique(const Invocation& invocation, const SnapshotFile& file, Context& context) {
    if (flag(invocation, "strict-unique"))
        report_repeats(invocation, SnapshotReader::open(file.path()), file.path(), context);
}

Pushed push(Connection& platform, const ops::DigestedFile& file, bool quiet, Context& context) {
    if (context.events)
        context.events->phase("upload");
    Pushed pushed = platform.push(file);
    if (context.events)
        context.events->end_phase();
    if (!quiet)
        context.err << fmt::format("{} {}, {} new\n", pushed.snapshot.substr(0, 7 + 12), bytes_text(pushed.bytes),
                                   bytes_text(pushed.new_bytes));
    return pushed;
}

// Once the version is live: puts the warmed-up snapshot in the place of the one with which it went live. Returns
// nothing if that one stays, also because of an error: the version is live already. `what`: name and version.
std::optional<Pushed> warm_up(const Invocation& invocation, Connection& platform, const std::string& what,
                              const std::string& target, const std::string& snapshot, SnapshotFile& file,
                              Context& context) {
    try {
        std::optional<Pushed> pushed;
        if (file.warmed(context)) {
            require_unique(invocation, file, context);
            pushed = push(platform, file.digested(), flag(invocation, "quiet"), context);
        }
        platform.call("PUT", target,
                      {{"snapshot", pushed ? pushed->snapshot : snapshot}, {"compress_later", file.hurried()}});
        return pushed;
    } catch (const std::runtime_error& error) { // UserError, HostError
        warn(context, fmt::format("{} stays as it was before its warm-up: {}", what, error.what()));
        return std::nullopt;
    } catch (const Interrupted& interrupted) {
        warn(context, fmt::format("interrupted: {} stays as it was before its warm-up", what));
        context.err.flush();
        interrupted.end();
        return std::nullopt;
    }
}

int deploy(const Invocation& invocation, Context& context) {
    Plan plan = plan_of(invocation, context);
    std::optional<ops::DigestedFile> digested; // read while the connection is made
    if (!plan.source.manifest && !flag(invocation, "dry-run"))
        digested.emplace(plan.source.path);
    auto platform = connect(invocation, context);
    if (flag(invocation, "dry-run"))
        return dry_run(invocation, context, plan, *platform);
    // Find mistakes before the build.
    if (!plan.source.manifest)
        report_repeats(invocation, SnapshotReader::open(plan.source.path), plan.source.path, context);
    const bool quiet = flag(invocation, "quiet");
    report_replaced(platform->call("PUT", plan.target(true), body_for_checks(plan, *platform)), plan, quiet, context);

    const bool activate = plan.body.at("activate").get<bool>();
    const Connection::Later later = plan.source.manifest ? platform->later() : Connection::Later{};
    // A machine that keeps its state would keep it without the warm-up.
    const bool behind = later.takes_warmed && activate && !plan.source.manifest->kept;
    SnapshotFile file(plan.source, talk(invocation), context, later.compresses ? Compress::in_a_hurry : Compress::fully,
                      behind ? WarmUp::behind : WarmUp::first);
    if (file.hurried())
        plan.body["compress_later"] = true;
    if (file.warms_up())
        plan.body["warms_up"] = true;
    if (plan.source.manifest)
        require_unique(invocation, file, context);
    if (!platform->serves())
        platform = connect(invocation, context); // a daemon that was starting may serve by now
    json storage;
    if (plan.storage && activate) // last, since what one that it replaces keeps is lost
        storage = plan.storage->deploy(*platform, invocation, flag(invocation, "new-storage"), context);
    Pushed pushed = push(*platform, digested ? *digested : file.digested(), quiet, context);
    plan.body["snapshot"] = pushed.snapshot;
    json result = platform->call("PUT", plan.target(false), plan.body);
    for (const json& excess : result.at("clamped"))
        warn(context, fmt::format("{}: {} is clamped (granted: {})", plan.name, excess.at("claim").get<std::string>(),
                                  excess.at("granted").get<std::string>()));
    const std::string number = fmt::to_string(result.at("version").get<std::uint64_t>());
    const std::string what = fmt::format("{} v{}", plan.name, number);
    if (!platform->serves())
        platform = connect(invocation, context); // as above; it looks at the store by itself
    const bool as_json = flag(invocation, "json");
    if (as_json)
        tell_live(*platform, activate, result, *context.events);
    else if (activate)
        print_live(*platform, what, result, plan.source.manifest && plan.source.manifest->protocol == "tcp", quiet,
                   context);
    else
        context.out << fmt::format("{} ready, live: {}\n", what, live_text(result.at("live")));
    if (file.warms_up()) {
        context.out.flush();
        if (const auto warmed = warm_up(invocation, *platform, what,
                                        target_of({"functions", plan.name, "versions", number, "snapshot"}),
                                        pushed.snapshot, file, context)) {
            pushed = *warmed;
            result["snapshot"] = pushed.snapshot;
        }
    }
    if (as_json) {
        if (!storage.is_null())
            result["storage"] = storage;
        result["bytes"] = pushed.bytes;
        result["new_bytes"] = pushed.new_bytes;
        print_result(context, result);
    }
    return 0;
}

} // namespace

Command deploy_command() {
    std::vector<OptionSpec> all(std::begin(kDeployOptions), std::end(kDeployOptions));
    for (const OptionSpec& spec : options_with_events({kVerbose, kDryRun, kMessage}))
        all.push_back(spec);
    return {.name = "deploy",
            .synopsis = "[FILE]",
            .summary = "make a snapshot or a manifest's program live",
            .operands = Operands::ours,
            .options = all,
            .action = deploy,
            .has_events = true};
}

} // namespace kvmserver::cli
