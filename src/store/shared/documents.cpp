#include "src/store/shared/documents.hpp"

#include <fmt/format.h>

#include "src/store/files/record_json.hpp"

namespace kvmserver::store {

namespace {

Json to_json(const Event& event) {
    Json json{{"time", event.time},     {"token", event.author.token}, {"author", event.author.name},
              {"action", event.action}, {"subject", event.subject},    {"tenant", event.author.tenant},
              {"change", event.change}, {"message", event.message}};
    if (event.bytes)
        json["bytes"] = *event.bytes;
    if (event.new_bytes)
        json["new_bytes"] = *event.new_bytes;
    return json;
}

bool truth_field(const Json& object, const char* name) {
    const Json& value = field(object, name);
    if (!value.is_boolean())
        throw RecordError(fmt::format("\"{}\" is neither true nor false", name));
    return value.get<bool>();
}

Event event_from(const Json& json) {
    Event event;
    event.time = time_field(json, "time");
    event.author = {truth_field(json, "token"), text_field(json, "author"), text_field(json, "tenant")};
    event.action = text_field(json, "action");
    event.subject = text_field(json, "subject");
    event.change = text_field(json, "change");
    event.message = text_field(json, "message");
    if (json.contains("bytes"))
        event.bytes = natural_field(json, "bytes");
    if (json.contains("new_bytes"))
        event.new_bytes = natural_field(json, "new_bytes");
    return event;
}

} // namespace

std::string shared_key(std::string_view function) { return fmt::format("{}{}", kSharedFunctions, function); }

std::string shared_key(const Route& route) { return fmt::format("{}{}", kSharedRoutes, route.text()); }

bool is_plain(std::string_view key) { return key.starts_with(kSharedRoutes) || key.starts_with(kSharedGc); }

bool is_copied(std::string_view key) {
    return key == kSharedSettings || key.starts_with(kSharedFunctions) || key.starts_with(kSharedDrained);
}

Digest digest_of_pieces(const SnapshotRecord& snapshot) {
    Sha256 sum;
    for (const ChunkRef& piece : snapshot.pieces) {
        const std::string line = fmt::format("{} {}\n", piece.digest.hex(), piece.length);
        sum.update(std::as_bytes(std::span(line)));
    }
    return sum.finish();
}

SharedFunction load_shared_function(const Database& database, std::int64_t id) {
    SharedFunction function{load_function(database, id), {}, load_events(database, id)};
    for (const std::uint64_t number : version_numbers(database, id)) {
        VersionRecord version = load_version(database, id, number);
        const Digest pieces = digest_of_pieces(load_snapshot(database, version.snapshot));
        function.versions.push_back({std::move(version), pieces});
    }
    return function;
}

std::string to_text(const SharedFunction& function) {
    Json versions = Json::array(), events = Json::array();
    for (const SharedVersion& version : function.versions)
        versions.push_back({{"record", to_record(version.record)}, {"pieces", version.pieces.hex()}});
    for (const Event& event : function.events)
        events.push_back(to_json(event));
    return Json{
        {"function", to_record(function.record)}, {"versions", std::move(versions)}, {"events", std::move(events)}}
        .dump();
}

SharedFunction shared_function_from_text(std::string_view text) {
    const Json json = parse_record(text);
    SharedFunction function{function_from_record(text_field(json, "function")), {}, {}};
    for (const Json& version : list_field(json, "versions")) {
        function.versions.push_back(
            {version_from_record(text_field(version, "record")), digest_field(version, "pieces")});
        if (function.versions.back().record.name != function.record.name)
            throw RecordError("has a version of another function");
    }
    for (const Json& event : list_field(json, "events"))
        function.events.push_back(event_from(event));
    return function;
}

} // namespace kvmserver::store
