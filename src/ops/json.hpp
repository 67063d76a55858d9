// JSON for the things in the store, as the API returns and the commands print it.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/store/functions/functions.hpp"
#include "src/store/functions/tokens.hpp"
#include "src/store/report.hpp"
#include "src/store/snapshots/gc.hpp"
#include "src/store/snapshots/verify.hpp"

namespace kvmserver::ops {

nlohmann::json live_json(const std::vector<store::Live>& live);
nlohmann::json routes_json(const std::vector<store::Route>& routes);
nlohmann::json version_json(const store::VersionInfo& version);
nlohmann::json event_json(const store::Event& event);
nlohmann::json summary_json(const store::FunctionSummary& function);
// Where TCP functions listen, of a function's live versions.
nlohmann::json listen_json(const std::vector<store::VersionInfo>& live);
nlohmann::json details_json(const store::FunctionDetails& function);
nlohmann::json token_json(const store::TokenInfo& token);
nlohmann::json gc_json(const store::GcResult& result, bool dry_run);
nlohmann::json verify_json(const store::VerifyReport& report);
const char* name_of(store::Finding::Kind kind);

} // namespace kvmserver::ops
