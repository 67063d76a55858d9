#include "src/store/functions/function_record.hpp"

#include <fmt/format.h>

#include "src/store/errors.hpp"
#include "src/store/files/folder.hpp"
#include "src/store/files/record_json.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

constexpr const char* kStates[] = {"pending", "ready", "failed"};

VersionState state_from(const std::string& name) {
    for (const VersionState state : {VersionState::pending, VersionState::ready, VersionState::failed})
        if (name == name_of(state))
            return state;
    throw RecordError("\"state\" is none that is known");
}

// A value that breaks the rules of the store is an error in a record, like a missing field.
template <class Record>
Record checked(Record record) {
    try {
        record.check();
    } catch (const BadValue& e) {
        throw RecordError(std::string("holds what no function can have: ") + e.what());
    }
    return record;
}

} // namespace

const char* name_of(VersionState state) { return kStates[static_cast<int>(state)]; }

std::string FunctionRecord::etag() const { return fmt::format("{}-{}", tag, revision); }

std::string live_text(const std::vector<Live>& live) {
    if (live.size() == 1)
        return fmt::format("v{}", live.front().version);
    std::string text;
    for (const Live& part : live)
        text += fmt::format("{}v{}:{}%", text.empty() ? "" : ",", part.version, part.percent);
    return live.empty() ? "none" : text;
}

void check_traffic(const std::vector<Live>& live) {
    unsigned sum = 0;
    std::uint64_t last = 0;
    for (const Live& part : live) {
        if (part.percent < 1 || part.percent > 100 || part.version <= last)
            throw BadValue("traffic: give each version once, with 1 to 100 percent");
        last = part.version;
        sum += part.percent;
    }
    if (!live.empty() && sum != 100)
        throw BadValue(fmt::format("traffic: the percentages sum to {}, not to 100", sum));
}

void FunctionRecord::check() const {
    check_function_name(name);
    check_traffic(live);
    for (const Route& route : routes)
        route.check();
    for (const auto& [variable, value] : env) {
        check_variable_name(variable);
        check_variable_value(variable, value);
    }
    for (const auto& [variable, secret] : secrets) {
        check_variable_name(variable);
        check_variable_value(variable, secret.value);
    }
    if (moved)
        moved->check();
    if (id <= 0 || revision == 0)
        throw BadValue("a number is 0");
}

void VersionRecord::check() const {
    check_function_name(name);
    check_manifest(manifest);
    if (function <= 0 || number == 0)
        throw BadValue("a number is 0");
}

std::string function_folder(std::string_view name) { return fmt::format("{}/{}", kFunctions, name); }
std::string function_record_path(std::string_view name) { return function_folder(name) + "/function.json"; }
std::string version_record_path(std::string_view name, std::uint64_t number) {
    return fmt::format("{}/{}.json", function_folder(name), number);
}

std::string to_record(const FunctionRecord& function) {
    Json live = Json::array(), routes = Json::array(), secrets = Json::object();
    for (const Live& part : function.live)
        live.push_back(Json::array({part.version, part.percent}));
    for (const Route& route : function.routes)
        routes.push_back(Json::array({route.host, route.path}));
    for (const auto& [name, secret] : function.secrets)
        secrets[name] = Json::array({secret.value, secret.changed});
    Json json{{"id", function.id},
              {"name", function.name},
              {"revision", function.revision},
              {"last_version", function.last_version},
              {"created", function.created},
              {"changed", function.changed},
              {"live", std::move(live)},
              {"routes", std::move(routes)},
              {"env", function.env},
              {"secrets", std::move(secrets)}};
    if (function.tag != FunctionRecord().tag)
        json["tag"] = function.tag;
    if (function.moved) // since schema 8
        json["moved"] = to_text(*function.moved);
    return seal_record("function", json.dump());
}

FunctionRecord function_from_record(std::string_view file) {
    const Json json = parse_record(open_record("function", file));
    FunctionRecord function;
    function.id = time_field(json, "id");
    function.name = text_field(json, "name");
    function.revision = natural_field(json, "revision");
    function.last_version = natural_field(json, "last_version");
    function.created = time_field(json, "created");
    function.changed = time_field(json, "changed");
    if (json.contains("tag")) // since schema 2; older records have none
        function.tag = text_field(json, "tag");
    for (const Json& part : list_field(json, "live")) {
        const std::uint64_t percent = natural(row(part, 2, "live")[1], "live");
        function.live.push_back(
            {natural(part[0], "live"), static_cast<unsigned>(std::min<std::uint64_t>(percent, 1000))});
    }
    for (const Json& route : list_field(json, "routes"))
        function.routes.push_back({text(row(route, 2, "routes")[0], "routes"), text(route[1], "routes")});
    for (const auto& [name, value] : field(json, "env").items())
        function.env[name] = text(value, "env");
    for (const auto& [name, value] : field(json, "secrets").items())
        function.secrets[name] = {text(row(value, 2, "secrets")[0], "secrets"),
                                  static_cast<std::int64_t>(natural(value[1], "secrets"))};
    if (json.contains("moved"))
        try {
            function.moved = moved_from_text(text_field(json, "moved"));
        } catch (const BadValue& e) {
            throw RecordError(std::string("\"moved\": ") + e.what());
        }
    return checked(std::move(function));
}

std::string to_record(const VersionRecord& version) {
    Json json{{"function", version.function},       {"name", version.name},         {"number", version.number},
              {"snapshot", version.snapshot.hex()}, {"manifest", version.manifest}, {"created", version.created},
              {"state", name_of(version.state)}};
    if (!version.tenant.empty())
        json["tenant"] = version.tenant;
    if (!version.ceilings.empty()) // older records have no such field either
        json["ceilings"] = version.ceilings;
    return seal_record("version", json.dump());
}

VersionRecord version_from_record(std::string_view file) {
    const Json json = parse_record(open_record("version", file));
    return checked(VersionRecord{time_field(json, "function"), text_field(json, "name"), natural_field(json, "number"),
                                 digest_field(json, "snapshot"), text_field(json, "manifest"),
                                 time_field(json, "created"), state_from(text_field(json, "state")),
                                 json.contains("tenant") ? text_field(json, "tenant") : "",
                                 json.contains("ceilings") ? text_field(json, "ceilings") : ""});
}

} // namespace kvmserver::store
