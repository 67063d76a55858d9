// kvmserver deploy: a snapshot, or what a manifest describes, becomes the live version of a function.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/platform/health.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/source.hpp"
#include "src/snapshot/reader.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using store::Route;
using Env = std::map<std::string, std::string>;

constexpr OptionSpec kOwn[] = {
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
    {.name = "no-activate", .group = "Options", .help = "add the version; what is live stays live"},
};

struct Plan {
    std::string name;
    Source source;
    std::vector<Route> wanted_routes; // when none are given: those that are there
    bool routes_given = false, activate = true, dry_run = false;
    std::optional<std::uint64_t> if_version;
};

// Routes and environment after the deploy, and what they were compared with.
struct Change {
    std::optional<store::FunctionDetails> now; // nothing: a new function
    std::optional<std::vector<Route>> routes;  // nothing: as they are
    std::optional<Env> env;
    std::string etag() const { return now ? now->etag : ""; }
};

std::string name_of(const Invocation& invocation, const Source& source) {
    if (const auto given = text(invocation, "name"))
        return *given;
    if (source.manifest && !source.manifest->name.empty())
        return source.manifest->name;
    const std::string name =
        (source.manifest ? source.manifest->folder.filename() : source.path.stem()).string();
    if (!store::is_function_name(name))
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("'{}' cannot be a function's name: give --name", name));
    return name;
}

Plan plan_of(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "deploy", "[FILE]", 0, 1);
    Plan plan;
    plan.activate = !flag(invocation, "no-activate");
    plan.dry_run = flag(invocation, "dry-run");
    if (const auto version = text(invocation, "if-version"))
        plan.if_version = version_number(*version);
    plan.source = find_source(invocation.operands.empty() ? "." : invocation.operands.front(), context);
    plan.name = name_of(invocation, plan.source);
    store::check_function_name(plan.name);
    if (plan.source.manifest)
        for (const std::string& warning : plan.source.manifest->warnings)
            context.err << "kvmserver: " << warning << '\n';
    if (const auto given = invocation.settings.find("route"); given != invocation.settings.end()) {
        plan.routes_given = true;
        for (const std::string& route : given->second.values)
            plan.wanted_routes.push_back(Route::parse(route));
    } else if (plan.source.manifest && plan.source.manifest->routes) {
        plan.routes_given = true;
        plan.wanted_routes = *plan.source.manifest->routes;
    } else {
        plan.wanted_routes = {Route::parse(plan.name + ".localhost")};
    }
    return plan;
}

void check_version(const Plan& plan, const Change& change) {
    if (!plan.if_version)
        return;
    if (!change.now) {
        if (*plan.if_version != 0)
            throw store::Conflict(
                fmt::format("there is no function {} yet, so v{} is not live", plan.name, *plan.if_version));
        return;
    }
    const auto& live = change.now->live;
    const auto most = std::ranges::max_element(live, {}, &store::Live::percent);
    if (most == live.end() ? *plan.if_version != 0 : most->version != *plan.if_version)
        throw store::Conflict(
            fmt::format("{} {} is live, not v{}", plan.name, live_text(live), *plan.if_version));
    if (*plan.if_version == 0)
        throw store::Conflict(fmt::format("there is a function {} already", plan.name));
}

void check_routes(const Plan& plan, const Change& change, store::Functions& functions) {
    if (!change.routes)
        return;
    for (const store::RouteOwner& owned : functions.routes())
        if (owned.function != plan.name &&
            std::ranges::find(*change.routes, owned.route) != change.routes->end())
            throw store::RouteTaken(owned.route.text(), owned.function);
}

// [function.env] of a stored manifest.
nlohmann::json manifest_env(const std::string& stored) {
    nlohmann::json at = nlohmann::json::parse(stored);
    for (const char* const key : {"function", "env"}) {
        if (!at.is_object() || !at.contains(key))
            return nlohmann::json::object();
        nlohmann::json inner = std::move(at[key]);
        at = std::move(inner);
    }
    return at.is_object() ? at : nlohmann::json::object();
}

// The manifest's variables over those that are set; those that the last manifest had and this one has not go.
Env merged_env(const store::FunctionDetails& now, const Manifest& manifest) {
    Env env = now.env;
    for (const store::VersionInfo& version : now.live_versions) {
        const nlohmann::json before = manifest_env(version.manifest);
        for (const auto& [name, value] : before.items())
            if (const auto at = env.find(name); at != env.end() && value == at->second)
                env.erase(at);
    }
    for (const auto& [name, value] : manifest.env)
        env[name] = value;
    return env;
}

// Functions is null when there is no store yet.
Change change_of(const Plan& plan, store::Functions* functions) {
    Change change;
    try {
        if (functions)
            change.now = functions->describe(plan.name);
    } catch (const store::NotFound&) {
    }
    check_version(plan, change);
    // What is live keeps its routes and environment when the new version does not go live.
    const bool applies = plan.activate || !change.now;
    if (applies && (plan.routes_given || !change.now))
        change.routes = plan.wanted_routes;
    if (applies && plan.source.manifest)
        change.env = change.now ? merged_env(*change.now, *plan.source.manifest) : plan.source.manifest->env;
    if (functions)
        check_routes(plan, change, *functions);
    return change;
}

std::vector<Route> routes_after(const Change& change) {
    return change.routes ? *change.routes : change.now->routes;
}

void print_difference(const Change& change, std::ostream& out) {
    const std::vector<Route> old_routes = change.now ? change.now->routes : std::vector<Route>{};
    const std::vector<Route> routes = routes_after(change);
    for (const Route& route : routes)
        if (std::ranges::find(old_routes, route) == old_routes.end())
            out << "+ route " << route.text() << '\n';
    for (const Route& route : old_routes)
        if (std::ranges::find(routes, route) == routes.end())
            out << "- route " << route.text() << '\n';
    const Env old_env = change.now ? change.now->env : Env{};
    const Env env = change.env.value_or(old_env);
    for (const auto& [name, value] : env)
        if (const auto at = old_env.find(name); at == old_env.end() || at->second != value)
            out << "+ env " << name << '=' << value << '\n';
    for (const auto& [name, value] : old_env)
        if (!env.contains(name))
            out << "- env " << name << '\n';
}

// Builds nothing: a build may change anything.
int dry_run(const Invocation& invocation, Context& context, const Plan& plan) {
    std::unique_ptr<store::Store> opened;
    std::optional<store::Functions> functions;
    if (store_exists(store_path(invocation, context))) {
        opened = open_store(invocation, context);
        functions.emplace(*opened);
    }
    if (!plan.source.manifest)
        SnapshotReader::open(plan.source.path).verify();
    const Change change = change_of(plan, functions ? &*functions : nullptr);
    const auto before = change.now ? change.now->live : std::vector<store::Live>{};
    if (flag(invocation, "json")) {
        print_json(context, {{"name", plan.name},
                             {"dry_run", true},
                             {"new", !change.now},
                             {"before", live_json(before)},
                             {"activate", plan.activate},
                             {"routes", routes_json(routes_after(change))},
                             {"env", change.env   ? *change.env
                                     : change.now ? change.now->env
                                                  : Env{}}});
        return 0;
    }
    print_difference(change, context.out);
    context.out << fmt::format("{} {} -> {} (dry run)\n", plan.name, live_text(before),
                               plan.activate ? "the new version" : live_text(before));
    return 0;
}

store::DeployResult put_live(const Plan& plan, const store::Digest& snapshot, store::Functions& functions,
                             std::vector<Route>& routes) {
    for (;;) {
        const Change change = change_of(plan, &functions); // again: building took its time
        store::DeployRequest request;
        request.function = plan.name;
        request.snapshot = snapshot;
        if (plan.source.manifest)
            request.manifest = plan.source.manifest->json;
        request.activate = plan.activate;
        request.routes = change.routes;
        request.env = change.env;
        request.if_match = change.etag();
        routes = routes_after(change);
        try {
            return functions.deploy(request);
        } catch (const store::StaleEtag&) { // somebody was faster: look again
        }
    }
}

int deploy(const Invocation& invocation, Context& context) {
    const Plan plan = plan_of(invocation, context);
    if (plan.dry_run)
        return dry_run(invocation, context, plan);
    // What is wrong anyway is better known before the build.
    if (!plan.source.manifest)
        SnapshotReader::open(plan.source.path);
    const auto opened = open_store(invocation, context, Absent::make);
    store::Functions functions(*opened);
    change_of(plan, &functions);

    const bool quiet = flag(invocation, "quiet");
    const SnapshotFile file(plan.source, quiet, context);
    const Imported imported = import_snapshot(*opened, file.path());
    const store::Digest& digest = imported.hold.digest();
    if (!quiet)
        context.err << fmt::format("sha256:{} {}, {} new\n", digest.hex().substr(0, 12),
                                   bytes_text(imported.bytes), bytes_text(imported.new_bytes));
    require_health(*opened, digest, plan.source.manifest ? &*plan.source.manifest : nullptr, context);
    std::vector<Route> routes;
    const store::DeployResult result = put_live(plan, digest, functions, routes);
    if (flag(invocation, "json")) {
        print_json(context, {{"name", plan.name},
                             {"version", result.version},
                             {"before", live_json(result.before)},
                             {"live", live_json(result.live)},
                             {"routes", routes_json(routes)},
                             {"snapshot", "sha256:" + digest.hex()},
                             {"bytes", imported.bytes},
                             {"new_bytes", imported.new_bytes},
                             {"etag", result.etag}});
        return 0;
    }
    if (plan.activate)
        context.out << fmt::format("{} v{} live{}\n", plan.name, result.version,
                                   routes.empty() ? "" : " " + url_of(routes.front()));
    else
        context.out << fmt::format("{} v{} ready, live: {}\n", plan.name, result.version,
                                   live_text(result.live));
    return 0;
}

} // namespace

Command deploy_command() {
    std::vector<OptionSpec> all(std::begin(kOwn), std::end(kOwn));
    for (const OptionSpec& spec : options({kDryRun}))
        all.push_back(spec);
    return {.name = "deploy",
            .synopsis = "[FILE]",
            .summary = "make a snapshot or a manifest's program live",
            .operands = Operands::ours,
            .options = all,
            .action = deploy};
}

} // namespace kvmserver::cli
