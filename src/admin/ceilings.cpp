#include "src/admin/ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "src/daemon/control.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/tenant.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"

namespace kvmserver::admin {

namespace {

Ceilings parsed(const std::string& text) {
    return ceilings_from(json::parse(text), [](std::string_view) { return "ceilings: "; });
}

} // namespace

AboveCeiling::AboveCeiling(const std::string& function, std::vector<Excess> claims)
    : UserError(tinykvm::ExitCode::not_permitted,
                fmt::format("{} asks for more than is granted: {}", function, text_of(claims))),
      claims_(std::move(claims)), hint_(std::ranges::any_of(claims_, &Excess::fatal)
                                            ? "ask the operator for more (docs/SERVE.md, Ceilings)"
                                            : "ask for less, or deploy with --clamp to run with what is granted") {}

json claims_json(const std::vector<Excess>& claims) {
    json list = json::array();
    for (const Excess& each : claims)
        list.push_back({{"claim", each.claim}, {"granted", each.granted}});
    return list;
}

Grants::Grants(Call& call, const std::string& function) : function_(function) {
    if (const std::string& text = call.who.ceilings(); !text.empty())
        own_ = parsed(text);
    else if (call.who.limited()) // a token from before ceilings existed
        own_ = strangers_ceilings();
    if (daemon::Control* control = call.api.options().control) {
        const auto file = control->ceilings();
        of_daemon_ = file->of(function);
        totals_ = file->sections_of(function);
    }
    prefix_ = call.who.prefix();
    limited_ = call.who.limited();
}

std::string Grants::own_text() const { return own_ ? to_json(*own_).dump() : ""; }

std::vector<Ceilings> Grants::all() const {
    std::vector<Ceilings> all;
    if (of_daemon_ != Ceilings{})
        all.push_back(of_daemon_);
    if (own_)
        all.push_back(*own_);
    return all;
}

std::vector<Excess> Grants::require(const Claims& claims, bool clamp) const {
    std::vector<Excess> found;
    for (const Ceilings& each : all())
        for (Excess& excess : claims_above(each, claims))
            found.push_back(std::move(excess));
    if (std::ranges::any_of(found, [&](const Excess& excess) { return !clamp || excess.fatal; }))
        throw AboveCeiling(function_, std::move(found));
    return found;
}

void Grants::require_totals(store::Store& store, const std::optional<Digest>& snapshot,
                            std::optional<std::uint64_t> instead_of) const {
    const auto bounded = [](const CeilingsFile::Section& each) {
        return each.ceilings.functions || each.ceilings.versions || each.ceilings.disk_bytes;
    };
    std::vector<CeilingsFile::Section> totals;
    std::ranges::copy_if(totals_, std::back_inserter(totals), bounded);
    if (own_ && bounded({prefix_, *own_}))
        totals.push_back({prefix_, *own_});
    if (totals.empty())
        return;
    store::Functions functions(store);
    std::vector<Excess> found;
    const auto all = functions.list();
    const auto now = std::ranges::find(all, function_, &store::FunctionSummary::name);
    for (const CeilingsFile::Section& each : totals) {
        const Ceilings& most = each.ceilings;
        const auto mine = [&prefix = each.prefix](const store::FunctionSummary& function) {
            return store::in_prefix(function.name, prefix);
        };
        // A tenant must not learn how much others have.
        const bool others = limited_ && !store::in_prefix(each.prefix, prefix_);
        const auto add = [&](std::string claim, std::string granted, const char* hidden) {
            if (others)
                found.push_back({hidden, "what there is already", true});
            else
                found.push_back({std::move(claim), std::move(granted), true});
        };
        const auto of = each.prefix.empty() ? std::string() : fmt::format(" that begin with {}", each.prefix);
        const auto count = static_cast<std::uint64_t>(std::ranges::count_if(all, mine));
        if (most.functions && now == all.end() && count + 1 > *most.functions)
            add(fmt::format("{} functions{}", count + 1, of), fmt::to_string(*most.functions), "one more function");
        if (const std::uint64_t versions = now == all.end() ? 0 : now->versions;
            most.versions && !instead_of && versions + 1 > *most.versions)
            found.push_back({fmt::format("{} versions", versions + 1), fmt::to_string(*most.versions), true});
        if (!most.disk_bytes || !snapshot)
            continue;
        std::map<Digest, std::uint64_t> kept{{*snapshot, store::StoredSnapshot(store, *snapshot).size()}};
        for (const store::FunctionSummary& function : all)
            if (mine(function))
                for (const store::VersionInfo& version : functions.versions(function.name))
                    if (function.name != function_ || version.number != instead_of)
                        kept[version.snapshot] = version.snapshot_bytes;
        std::uint64_t bytes = 0;
        for (const auto& [digest, size] : kept)
            bytes += size;
        constexpr std::uint64_t kMib = 1 << 20;
        if (bytes > *most.disk_bytes)
            add(fmt::format("{} MiB of snapshots of functions{}", (bytes + kMib - 1) / kMib, of),
                fmt::format("{} MiB", *most.disk_bytes / kMib), "one more snapshot");
    }
    if (!found.empty())
        throw AboveCeiling(function_, std::move(found));
}

std::string token_ceilings(const std::optional<json>& given, const std::string& prefix, unsigned scopes) {
    if (given && prefix.empty() && (scopes & store::kScopeAdmin) != 0)
        throw store::BadValue("ceilings are for tokens that may not everything: scope admin could change them");
    Ceilings ceilings;
    if (given) {
        try {
            ceilings = ceilings_from(*given, [](std::string_view) { return "ceilings: "; });
        } catch (const tinykvm::UserError& error) {
            throw store::BadValue(error.what());
        }
    }
    if (!prefix.empty())
        ceilings = merged(strangers_ceilings(), ceilings);
    return ceilings == Ceilings{} ? "" : to_json(ceilings).dump();
}

} // namespace kvmserver::admin
