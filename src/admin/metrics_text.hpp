// Formats metrics in Prometheus' text format 0.0.4.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/daemon/control.hpp"

namespace kvmserver::admin {

struct Scrape {
    daemon::MetricsSnapshot metrics;
    std::vector<daemon::VersionLive> live;
    std::uint64_t store_bytes = 0;                   // of all snapshots; shared chunks count once
    std::optional<std::filesystem::space_info> disk; // the store's; nothing: unknown
    std::string version;                             // of kvmserver
};

std::string metrics_text(const Scrape& scrape);

} // namespace kvmserver::admin
