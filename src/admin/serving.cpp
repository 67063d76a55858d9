// /metrics, /v1/live, invoke and reload: endpoints that need the daemon.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "src/admin/handlers.hpp"
#include "src/admin/metrics_text.hpp"
#include "src/admin/wrapped_reply.hpp"
#include "src/daemon/control.hpp"
#include "src/http/fields.hpp"
#include "src/store/errors.hpp"
#include "src/store/index/database.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::admin {
namespace {

constexpr std::size_t kMaxBody = 32u << 20;
constexpr double kLongest = 600; // seconds

std::uint64_t bytes_of_chunks(store::Store& store) {
    auto index = store.index();
    auto sum = index->prepare("SELECT coalesce(sum(size), 0) FROM chunk");
    sum.step();
    return sum.natural(0);
}

// Parses "Name: value".
std::pair<std::string, std::string> header_from(std::string_view line) {
    const auto colon = line.find(':');
    const std::string_view name = line.substr(0, colon);
    if (colon == line.npos || !http::is_token(name))
        throw store::BadValue(fmt::format("Kvmserver-Header: '{}': write NAME: VALUE", tinykvm::brief(line)));
    return {std::string(name), std::string(http::trimmed(line.substr(colon + 1)))};
}

// A browser joins headers of one name into one, and values may hold commas: so there is also a JSON array of them.
void add_headers(const std::string& text, std::vector<std::pair<std::string, std::string>>& headers) {
    const json list = json::parse(text, nullptr, false);
    if (!list.is_array() || !std::ranges::all_of(list, [](const json& each) { return each.is_string(); }))
        throw store::BadValue(R"(Kvmserver-Headers: it must be a JSON array of "NAME: VALUE")");
    for (const json& each : list) {
        auto header = header_from(each.get<std::string>());
        for (const char c : header.second) // JSON may escape what ends a line
            if ((static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f)
                throw store::BadValue(fmt::format("Kvmserver-Headers: {} holds a control character", header.first));
        headers.push_back(std::move(header));
    }
}

double seconds_of(Call& call) {
    const auto text = call.query("timeout");
    if (!text)
        return 60;
    char* end = nullptr;
    const double seconds = std::strtod(text->c_str(), &end);
    if (end == text->c_str() || *end != '\0' || !(seconds > 0) || seconds > kLongest)
        throw store::BadValue(
            fmt::format("timeout: '{}' is not above 0 and at most {} seconds", tinykvm::brief(*text), kLongest));
    return seconds;
}

daemon::InvokeRequest asked(Call& call) {
    daemon::InvokeRequest asked;
    asked.function = call.param("name");
    asked.version = call.query_number("version");
    asked.method = call.query("method").value_or("GET");
    asked.path = call.query("path").value_or("/");
    if (!http::is_token(asked.method))
        throw store::BadValue("method: it is not an HTTP method");
    if (!asked.path.starts_with('/') || asked.path.size() > 8192)
        throw store::BadValue("path: it must begin with / and have at most 8192 characters");
    for (const char c : asked.path)
        if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f || c == '#')
            throw store::BadValue("path: it holds a space, a control character or #");
    for (const auto& [name, value] : call.request.headers)
        if (http::equal_nocase(name, "Kvmserver-Header"))
            asked.headers.push_back(header_from(value));
        else if (http::equal_nocase(name, "Kvmserver-Headers"))
            add_headers(value, asked.headers);
    asked.timeout_seconds = seconds_of(call);
    asked.body = call.body(kMaxBody);
    return asked;
}

bool is_wrapped(Call& call) {
    const std::string form = call.query("reply").value_or("");
    if (!form.empty() && form != "json" && form != "plain")
        throw store::BadValue(fmt::format("reply: '{}' is neither json nor plain", tinykvm::brief(form)));
    return form == "json" || from_browser(call.request); // a browser gets no other, whatever it asks for
}

// Whether a header of the function's reply is passed on; hop-by-hop and our own headers are not.
bool passes(const std::string& name) {
    for (const char* const own : {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade"})
        if (http::equal_nocase(name, own))
            return false;
    return name.size() < 10 || !http::equal_nocase(std::string_view(name).substr(0, 10), "kvmserver-");
}

double ms(std::uint64_t us) { return static_cast<double>(us) / 1000; }

json counts_json(const daemon::VersionMetrics& counted) {
    return {{"requests", counted.duration.count},
            {"duration_us", counted.duration.sum_us},
            {"cold_starts", counted.cold_starts},
            {"failed", counted.failed()}};
}

// Includes versions that are no longer live: then the sums never fall, and the difference of two readings is a rate.
json counted_json(const daemon::MetricsSnapshot& metrics, const std::function<bool(const std::string&)>& asked_for) {
    auto list = json::array();
    for (const auto& [key, counted] : metrics.versions) {
        if (key.first.empty() || !asked_for(key.first))
            continue;
        json object = counts_json(counted);
        object.update({{"function", key.first}, {"version", key.second}, {"latency", counted.duration.buckets}});
        list.push_back(std::move(object));
    }
    return list;
}

} // namespace

void metrics(Call& call) {
    daemon::Control& control = call.api.control();
    std::error_code error;
    const auto disk = std::filesystem::space(call.api.source().path(), error);
    const Scrape scrape{.metrics = control.metrics(),
                        .live = control.live(false),
                        .store_bytes = bytes_of_chunks(call.store()),
                        .disk = error ? std::nullopt : std::optional(disk),
                        .version = call.api.options().version};
    call.reply_bytes(200, metrics_text(scrape), {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}});
}

void live(Call& call) {
    auto list = json::array();
    daemon::Control& control = call.api.control();
    const daemon::MetricsSnapshot metrics = control.metrics();
    const auto after = call.query("after"), until = call.query("until");
    const auto asked_for = [&](const std::string& function) {
        return (!after || function > *after) && (!until || function <= *until) &&
               call.who.allows(store::kScopeRead, function);
    };
    for (const daemon::VersionLive& one : control.live(call.query_flag("running"))) {
        if (!asked_for(one.function))
            continue;
        json object{{"function", one.function},
                    {"version", one.version},
                    {"percent", one.percent},
                    {"state", one.state},
                    {"machines", one.machines},
                    {"busy", one.busy},
                    {"in_flight", one.in_flight},
                    {"queued", one.queued},
                    {"starts", one.starts},
                    {"suspended", one.suspended},
                    // A tenant gets the RSS: the PSS would tell how many other processes share its pages.
                    {"memory_bytes", call.who.limited() ? one.resident_bytes : one.memory_bytes}};
        if (!call.who.limited())
            object["pid"] = one.pid;
        if (!one.last_failure.empty())
            object["last_failure"] = one.last_failure;
        const auto at = metrics.versions.find({one.function, one.version});
        object.update(counts_json(at == metrics.versions.end() ? daemon::VersionMetrics() : at->second));
        list.push_back(object);
    }
    call.reply(200,
               {{"live", list}, {"counted", counted_json(metrics, asked_for)}, {"bounds_us", daemon::kLatencyBounds}});
}

void invoke(Call& call) {
    daemon::Control& control = call.api.control();
    const bool wants_wrapped = is_wrapped(call);
    const daemon::InvokeReply reply = control.invoke(asked(call));
    Headers headers{{"Kvmserver-Request-Id", reply.request_id},
                    {"Server-Timing",
                     fmt::format("queue;dur={:.3f}, restore;dur={:.3f}, exec;dur={:.3f}, total;dur={:.3f}",
                                 ms(reply.queue_us), ms(reply.restore_us), ms(reply.exec_us), ms(reply.total_us))}};
    if (reply.cold)
        headers.emplace_back("Kvmserver-Cold", "1");
    if (!reply.problem_code.empty())
        throw Refused(reply.status ? reply.status : 502, reply.problem_code, reply.problem_detail, reply.problem_hint,
                      std::move(headers));
    if (wants_wrapped) {
        headers.emplace_back("Content-Type", kWrappedType);
        headers.emplace_back("X-Content-Type-Options", "nosniff");
        headers.emplace_back("Cache-Control", "no-store");
        return call.reply_bytes(200, wrapped(reply).dump() + "\n", headers);
    }
    // Its presence tells that the reply is the function's.
    headers.emplace_back("Kvmserver-Version", std::to_string(reply.version));
    for (const auto& [name, value] : reply.headers)
        if (passes(name))
            headers.emplace_back(name, value);
    call.reply_bytes(reply.status, reply.body, headers);
}

void suspend(Call& call) {
    call.no_members();
    const std::string& name = call.param("name");
    call.reply(200, {{"name", name}, {"machines", call.api.control().suspend(name)}});
}

void resume(Call& call) {
    call.no_members();
    const std::string& name = call.param("name");
    call.reply(200, {{"name", name}, {"machines", call.api.control().resume(name)}});
}

void reload(Call& call) {
    call.no_members();
    call.api.control().reload();
    call.reply(200, {{"reloaded", true}});
}

} // namespace kvmserver::admin
