#include "src/admin/metrics_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

namespace kvmserver::admin {
namespace {

using daemon::Histogram;
using daemon::VersionLive;
using daemon::VersionMetrics;

std::string escaped(std::string_view value) {
    std::string out;
    for (const char c : value) {
        if (c == '\\' || c == '"')
            out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out;
}

std::string of(const std::string& function, std::uint64_t version) {
    return fmt::format("function=\"{}\",version=\"{}\"", escaped(function), version);
}

class Text {
public:
    void family(const char* name, const char* type, const char* help) {
        name_ = name;
        fmt::format_to(std::back_inserter(out_), "# HELP kvmserver_{} {}\n# TYPE kvmserver_{} {}\n", name, help, name,
                       type);
    }
    template <class Value>
    void sample(const std::string& labels, Value value, const char* suffix = "") {
        fmt::format_to(std::back_inserter(out_), "kvmserver_{}{}{}{}{} {}\n", name_, suffix, labels.empty() ? "" : "{",
                       labels, labels.empty() ? "" : "}", value);
    }
    void histogram(const std::string& labels, const Histogram& histogram) {
        std::uint64_t below = 0;
        for (std::size_t i = 0; i < daemon::kLatencyBounds.size(); ++i) {
            below += histogram.buckets[i];
            sample(fmt::format("{},le=\"{}\"", labels, static_cast<double>(daemon::kLatencyBounds[i]) / 1e6), below,
                   "_bucket");
        }
        sample(labels + ",le=\"+Inf\"", below + histogram.buckets.back(), "_bucket");
        sample(labels, static_cast<double>(histogram.sum_us) / 1e6, "_sum");
        sample(labels, below + histogram.buckets.back(), "_count");
    }
    std::string take() { return std::move(out_); }

private:
    const char* name_ = "";
    std::string out_;
};

using Each = std::function<void(const std::string& labels, const VersionMetrics&)>;

void per_version(const Scrape& scrape, const Each& each) {
    for (const auto& [key, metrics] : scrape.metrics.versions)
        each(of(key.first, key.second), metrics);
}

void counts(Text& text, const Scrape& scrape) {
    text.family("requests_total", "counter", "Requests by status; 0: the client got none.");
    per_version(scrape, [&](const std::string& labels, const VersionMetrics& metrics) {
        for (const auto& [status, count] : metrics.requests)
            text.sample(fmt::format("{},code=\"{}\"", labels, status), count);
    });
    text.family("tcp_connections_total", "counter", "Connections of TCP functions that are over, by how they ended.");
    per_version(scrape, [&](const std::string& labels, const VersionMetrics& metrics) {
        for (const auto& [outcome, count] : metrics.connections)
            text.sample(fmt::format("{},outcome=\"{}\"", labels, escaped(outcome)), count);
    });
    const auto by_reason = [&](const char* name, const char* help, auto member) {
        text.family(name, "counter", help);
        per_version(scrape, [&](const std::string& labels, const VersionMetrics& metrics) {
            for (const auto& [reason, count] : metrics.*member)
                text.sample(fmt::format("{},reason=\"{}\"", labels, escaped(reason)), count);
        });
    };
    by_reason("rejected_total", "Requests that no machine was given to.", &VersionMetrics::rejected);
    by_reason("faults_total", "Requests that the function failed.", &VersionMetrics::faults);
    const auto counter = [&](const char* name, const char* help, auto member) {
        text.family(name, "counter", help);
        per_version(scrape, [&](const std::string& labels, const VersionMetrics& metrics) {
            text.sample(labels, metrics.*member);
        });
    };
    counter("cold_starts_total", "Requests that waited for a process to be restored.", &VersionMetrics::cold_starts);
    counter("timeouts_total", "Requests over their time limit.", &VersionMetrics::timeouts);
    counter("dirty_pages_total", "Pages that resets put back.", &VersionMetrics::dirty_pages);
    counter("received_bytes_total", "Bytes of requests.", &VersionMetrics::bytes_in);
    counter("sent_bytes_total", "Bytes of replies.", &VersionMetrics::bytes_out);
    text.family("cpu_seconds_total", "counter", "CPU time of machines while they served.");
    per_version(scrape, [&](const std::string& labels, const VersionMetrics& metrics) {
        text.sample(labels, static_cast<double>(metrics.cpu_us) / 1e6);
    });
}

void durations(Text& text, const Scrape& scrape) {
    const auto family = [&](const char* name, const char* help, auto member) {
        text.family(name, "histogram", help);
        per_version(scrape, [&](const std::string& labels, const VersionMetrics& metrics) {
            text.histogram(labels, metrics.*member);
        });
    };
    family("request_duration_seconds", "From a request's first byte to its reply's last.", &VersionMetrics::duration);
    family("queue_duration_seconds", "Waiting for a machine.", &VersionMetrics::queue);
    family("restore_duration_seconds", "Restoring a snapshot.", &VersionMetrics::restore);
    family("reset_duration_seconds", "Putting a machine back.", &VersionMetrics::reset);
}

// One entry per version. While a version's old process stops beside its successor there are two, but Prometheus rejects
// the whole scrape if a series occurs twice.
std::vector<VersionLive> folded(const std::vector<VersionLive>& all) {
    std::map<std::pair<std::string, std::uint64_t>, VersionLive> versions;
    for (const VersionLive& live : all) {
        const auto [at, first] = versions.try_emplace({live.function, live.version}, live);
        if (first)
            continue;
        VersionLive& sum = at->second;
        sum.machines += live.machines;
        sum.busy += live.busy;
        sum.suspended += live.suspended;
        sum.queued += live.queued;
        sum.memory_bytes += live.memory_bytes;
        sum.starts = std::max(sum.starts, live.starts); // already per version, not per process
    }
    std::vector<VersionLive> rows;
    rows.reserve(versions.size());
    for (auto& [key, live] : versions)
        rows.push_back(std::move(live));
    return rows;
}

void states(Text& text, const Scrape& scrape) {
    const std::vector<VersionLive> rows = folded(scrape.live);
    text.family("in_flight_requests", "gauge", "Requests of the public listener that are not over.");
    text.sample("", scrape.metrics.in_flight);
    text.family("open_connections", "gauge", "Connections of the public listener.");
    text.sample("", scrape.metrics.open_connections);
    text.family("open_tcp_connections", "gauge", "Connections of TCP functions.");
    text.sample("", scrape.metrics.open_tcp_connections);
    text.family("vms", "gauge", "Request machines.");
    for (const VersionLive& live : rows) {
        const std::string labels = of(live.function, live.version);
        text.sample(labels + ",state=\"busy\"", live.busy);
        text.sample(labels + ",state=\"ready\"", live.machines - std::min(live.machines, live.busy));
    }
    text.family("vms_given_back_total", "counter", "Idle machines that were ended because memory was short.");
    text.sample("", scrape.metrics.given_back);
    text.family("suspended_vms", "gauge", "Machines without a process that have a saved state.");
    for (const VersionLive& live : rows)
        if (live.suspends)
            text.sample(of(live.function, live.version), live.suspended);
    text.family("queued_requests", "gauge", "Requests that wait for a machine.");
    for (const VersionLive& live : rows)
        text.sample(of(live.function, live.version), live.queued);
    text.family("memory_bytes", "gauge", "Memory of a version's processes.");
    for (const VersionLive& live : rows)
        text.sample(of(live.function, live.version) + ",kind=\"pss\"", live.memory_bytes);
    text.family("process_starts_total", "counter", "Starts of a version's process.");
    for (const VersionLive& live : rows)
        text.sample(of(live.function, live.version), live.starts);
    text.family("store_bytes", "gauge", "Bytes of chunks in the store.");
    text.sample("", scrape.store_bytes);
    if (scrape.disk) {
        text.family("store_disk_free_bytes", "gauge", "Bytes free on the store's disk.");
        text.sample("", scrape.disk->available);
        text.family("store_disk_bytes", "gauge", "Size of the store's disk.");
        text.sample("", scrape.disk->capacity);
    }
    if (scrape.metrics.spans) {
        text.family("spans_total", "counter", "Spans that the collector of traces took.");
        text.sample("", scrape.metrics.spans->sent);
        text.family("spans_dropped_total", "counter", "Spans that no collector got: it was away, too slow or refused.");
        text.sample("", scrape.metrics.spans->dropped);
    }
    if (scrape.metrics.chunks) {
        text.family("chunk_store_uploaded_bytes_total", "counter", "Bytes of chunks sent to the bucket of --chunks.");
        text.sample("", scrape.metrics.chunks->sent);
        text.family("chunk_store_fetched_bytes_total", "counter", "Bytes of chunks fetched from it.");
        text.sample("", scrape.metrics.chunks->fetched);
        text.family("chunk_store_failures_total", "counter", "Requests to it that failed, each after some tries.");
        text.sample("", scrape.metrics.chunks->failures);
    }
    if (scrape.metrics.cluster) {
        text.family("cluster_followed", "gauge", "1: what other daemons of the cluster change comes here at once.");
        text.sample("", std::uint64_t{scrape.metrics.cluster->followed});
        text.family("cluster_revision", "gauge", "Revision of the cluster's index up to which all is copied here.");
        text.sample("", static_cast<std::uint64_t>(scrape.metrics.cluster->revision));
        text.family("node_drained", "gauge", "1: load balancers shall send this node of the cluster no requests.");
        text.sample("", std::uint64_t{scrape.metrics.cluster->drained});
        text.family("cluster_away", "gauge", "1: functions are not served, after --cluster-away-limit without etcd.");
        text.sample("", std::uint64_t{scrape.metrics.cluster->refuses});
    }
    if (scrape.metrics.certificate_expiry || !scrape.metrics.certificate_expiries.empty())
        text.family("certificate_expiry_time_seconds", "gauge", "When the certificate expires, since 1970.");
    if (scrape.metrics.certificate_expiry)
        text.sample("", *scrape.metrics.certificate_expiry);
    for (const auto& [name, expiry] : scrape.metrics.certificate_expiries)
        text.sample(fmt::format("certificate=\"{}\"", escaped(name)), expiry);
    text.family("start_time_seconds", "gauge", "When the daemon began, since 1970.");
    text.sample("", static_cast<double>(scrape.metrics.started_ms) / 1e3);
    text.family("build_info", "gauge", "The version of kvmserver.");
    text.sample(fmt::format("version=\"{}\"", escaped(scrape.version)), 1);
}

} // namespace

std::string metrics_text(const Scrape& scrape) {
    Text text;
    counts(text, scrape);
    durations(text, scrape);
    states(text, scrape);
    return text.take();
}

} // namespace kvmserver::admin
