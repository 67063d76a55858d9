#include "src/admin/storage.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/store/errors.hpp"
#include "src/store/functions/tenant.hpp"

namespace kvmserver::admin {

void require_storage(Call& call, const ops::DeployPlan& plan, const daemon::FunctionSettings& settings) {
    const std::string& storage = settings.storage;
    if (storage.empty() || !(plan.activate || plan.arrives))
        return;
    if (storage == plan.name)
        throw store::BadValue(fmt::format("function.storage.function: {} cannot be its own storage", storage));
    if (call.who.limited() && !store::in_prefix(storage, call.who.prefix()))
        throw Refused(403, "storage-not-granted",
                      fmt::format("function.storage.function: this token is for functions whose names begin with {}, "
                                  "not for {}",
                                  call.who.prefix(), storage),
                      "Name a function that the token is for.");
    store::Store* const opened = call.api.source().get();
    std::vector<store::VersionInfo> live;
    try {
        if (opened)
            live = store::Functions(*opened).describe(storage).live_versions;
    } catch (const store::NotFound&) {
    }
    if (live.empty())
        throw store::NotFound(
            fmt::format("function.storage.function: no function {} is live: deploy it first", storage));
    for (const store::VersionInfo& version : live) {
        const auto tcp = daemon::function_settings(version.manifest).tcp;
        if (!tcp || tcp->by_name)
            throw store::Conflict(fmt::format(
                "function.storage.function: {} v{} does not have protocol = \"tcp\": a storage is reached as "
                "a TCP server is",
                storage, version.number));
    }
}

} // namespace kvmserver::admin
