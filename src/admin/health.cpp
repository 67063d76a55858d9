// /healthz, /readyz, /v1, /v1/info
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/admin/handlers.hpp"
#include "src/common/time_text.hpp"
#include "src/daemon/control.hpp"
#include "src/ops/json.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::admin {
namespace {

constexpr std::uint64_t kMinFree = 64u << 20; // bytes free on the store's disk

json disk_facts(const std::filesystem::path& path) {
    struct statvfs disk {};
    if (::statvfs(path.c_str(), &disk) != 0)
        return {{"error", std::strerror(errno)}};
    return {{"free_bytes", std::uint64_t{disk.f_bavail} * disk.f_frsize},
            {"total_bytes", std::uint64_t{disk.f_blocks} * disk.f_frsize}};
}

std::string kvm_problem() {
    const tinykvm::UniqueFd kvm(::open("/dev/kvm", O_RDWR | O_CLOEXEC));
    return kvm ? "" : fmt::format("/dev/kvm: {}", std::strerror(errno));
}

std::string store_problem(StoreSource& source) {
    try {
        store::Store* store = source.get();
        if (!store)
            return "there is none";
        store->require_readable();
        return "";
    } catch (const std::exception& error) {
        return error.what();
    }
}

std::string disk_problem(const std::filesystem::path& path) {
    const json facts = disk_facts(path);
    if (facts.contains("error"))
        return facts["error"];
    const auto free = facts["free_bytes"].get<std::uint64_t>();
    return free >= kMinFree ? "" : fmt::format("{} bytes are free", free);
}

const char* name_of(Of of) {
    switch (of) {
    case Of::nobody: return "open";
    case Of::holder: return "token";
    case Of::any: return "any";
    case Of::function: return "function";
    case Of::store: return "store";
    }
    return "";
}

} // namespace

void healthz(Call& call) { call.reply_bytes(200, "ok\n", {{"Content-Type", "text/plain"}}); }

void readyz(Call& call) {
    json checks;
    bool ready = true;
    const auto check = [&](const char* name, const std::string& problem) {
        // No token is needed here, so tell only that something is wrong.
        checks[name] = problem.empty() ? "ok" : "failed";
        ready &= problem.empty();
    };
    check("kvm", kvm_problem());
    check("store", store_problem(call.api.source()));
    check("disk", disk_problem(call.api.source().path()));
    if (const daemon::Control* control = call.api.options().control)
        if (const daemon::DaemonInfo daemon = control->info();
            daemon.draining || daemon.drained || daemon.away_too_long) {
            checks["daemon"] = daemon.draining ? "stopping" : daemon.away_too_long ? "cluster-away" : "drained";
            ready = false;
        }
    call.reply(ready ? 200 : 503, {{"ready", ready}, {"checks", checks}});
}

void describe_api(Call& call) {
    auto list = json::array();
    for (const Endpoint& endpoint : endpoints())
        list.push_back({{"method", endpoint.method},
                        {"path", endpoint.path},
                        {"of", name_of(endpoint.of)},
                        {"scope", store::scope_names(endpoint.scope).front()},
                        {"summary", endpoint.summary}});
    call.reply(200, {{"endpoints", list}});
}

void info(Call& call) {
    json object{{"version", call.api.options().version},
                {"api", "v1"},
                {"caller",
                 {{"name", call.who.name()},
                  {"scopes", store::scope_names(call.who.scopes())},
                  {"prefix", call.who.prefix()}}}};
    if (call.who.allows(store::kScopeRead, "")) {
        object["store"] = {{"path", call.api.source().path().string()}, {"disk", disk_facts(call.api.source().path())}};
        const std::string kvm = kvm_problem(), store = store_problem(call.api.source());
        object["kvm"] = kvm.empty() ? "ok" : kvm;
        object["store"]["state"] = store.empty() ? "ok" : store;
        json& disk = object["store"]["disk"];
        if (disk.contains("total_bytes"))
            disk["kept_free_bytes"] = call.api.uploads().kept_free(disk["total_bytes"]);
    }
    if (const daemon::Control* control = call.api.options().control) {
        const daemon::DaemonInfo daemon = control->info();
        object["daemon"] = {{"address", daemon.address},
                            {"port", daemon.port},
                            {"tls", daemon.tls},
                            {"started", time_text(daemon.started_ms)},
                            {"draining", daemon.draining},
                            {"drained", daemon.drained},
                            {"cluster_away", daemon.away_too_long},
                            {"compresses_later", true},
                            {"takes_warmed", true}};
        if (call.who.allows(store::kScopeRead, ""))
            object["daemon"].update({{"functions", daemon.functions},
                                     {"processes", daemon.processes},
                                     {"machines", daemon.machines},
                                     {"max_machines", daemon.max_machines}});
    }
    call.reply(200, object);
}

} // namespace kvmserver::admin
