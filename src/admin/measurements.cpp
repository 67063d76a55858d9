// /v1/functions/{name}/measurements and /v1/measurements: what functions did lately, step by step.
#include "src/daemon/measurements.hpp"

#include <fmt/format.h>

#include "src/admin/handlers.hpp"
#include "src/common/time_text.hpp"
#include "src/daemon/control.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::admin {
namespace {

using daemon::Counts;
using daemon::Span;

const Span& span_of(const Call& call) {
    const auto name = call.query("span");
    if (!name)
        return daemon::kSpans.front();
    for (const Span& span : daemon::kSpans)
        if (span.name == *name)
            return span;
    throw store::BadValue(fmt::format("span: '{}' is not 1h, 24h or 7d", tinykvm::brief(*name)));
}

json percentile(const Counts& counts, unsigned percent) {
    const auto us = counts.latency_us(percent);
    return us ? json(*us) : json(nullptr);
}

json point_json(std::int64_t time, const Counts& counts) {
    return {{"time", time_text(time * 1000)}, {"requests", counts.requests}, {"errors", counts.errors}};
}

// What both replies begin with.
json head(const Span& span, std::int64_t from, std::int64_t to) {
    return {{"span", span.name},
            {"step_seconds", span.step},
            {"from", time_text(from * 1000)},
            {"to", time_text(to * 1000)}};
}

} // namespace

void list_measurements(Call& call) {
    const Span& span = span_of(call);
    daemon::Measurements& measurements = call.api.control().measurements();
    const std::string& name = call.param("name");
    const store::FunctionDetails function = store::Functions(call.store()).describe(name);
    const daemon::Series series = measurements.of({name, function.created}, span);
    json object = head(span, series.from, series.to);
    object["name"] = name;
    object["points"] = json::array();
    for (const auto& [time, counts] : series.points) {
        json point = point_json(time, counts);
        point.update({{"cold_starts", counts.cold_starts},
                      {"p50_us", percentile(counts, 50)},
                      {"p95_us", percentile(counts, 95)},
                      {"p99_us", percentile(counts, 99)}});
        object["points"].push_back(std::move(point));
    }
    call.reply(200, object);
}

void list_all_measurements(Call& call) {
    const Span& span = span_of(call);
    const daemon::SeriesOfAll all = call.api.control().measurements().of_all(span);
    json object = head(span, all.from, all.to);
    object["functions"] = json::array();
    for (const auto& [name, points] : all.functions) {
        if (!call.who.allows(store::kScopeRead, name))
            continue;
        auto list = json::array();
        for (const auto& [time, counts] : points)
            list.push_back(point_json(time, counts));
        object["functions"].push_back({{"name", name}, {"points", std::move(list)}});
    }
    call.reply(200, object);
}

} // namespace kvmserver::admin
