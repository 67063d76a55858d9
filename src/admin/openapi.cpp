// /v1/openapi.json
#include "src/admin/openapi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "src/admin/handlers.hpp"
#include "src/admin/problem_codes.hpp"
#include "src/admin/table.hpp"

extern "C" {
extern const char kvmserver_openapi_shapes[], kvmserver_openapi_shapes_end[];
extern const char kvmserver_openapi_daemon_shapes[], kvmserver_openapi_daemon_shapes_end[];
extern const char kvmserver_openapi_history_shapes[], kvmserver_openapi_history_shapes_end[];
extern const char kvmserver_openapi_measurement_shapes[], kvmserver_openapi_measurement_shapes_end[];
extern const char kvmserver_openapi_parts[], kvmserver_openapi_parts_end[];
}

namespace kvmserver::admin {
namespace {

using Json = nlohmann::ordered_json;
using Codes = std::vector<std::string_view>;

const Json& find(const Json& all, const char* kind, std::string_view name) {
    const auto at = all.find(name);
    if (at == all.end())
        throw std::logic_error(fmt::format("openapi: there is no {} \"{}\"", kind, name));
    return *at;
}

class Document {
public:
    Document()
        : parts_(Json::parse(kvmserver_openapi_parts, kvmserver_openapi_parts_end)),
          shapes_(Json::parse(kvmserver_openapi_shapes, kvmserver_openapi_shapes_end)) {
        shapes_.update(Json::parse(kvmserver_openapi_daemon_shapes, kvmserver_openapi_daemon_shapes_end));
        shapes_.update(Json::parse(kvmserver_openapi_history_shapes, kvmserver_openapi_history_shapes_end));
        shapes_.update(Json::parse(kvmserver_openapi_measurement_shapes, kvmserver_openapi_measurement_shapes_end));
    }

    Json whole() const {
        Json paths = Json::object();
        for (const Endpoint& endpoint : endpoints())
            paths[std::string(endpoint.path)][lower(endpoint.method)] = operation(endpoint);
        return {{"openapi", "3.1.0"},
                {"info", parts_.at("info")},
                {"servers", Json::array({{{"url", "/"}}})},
                {"paths", paths},
                {"components", {{"schemas", shapes_}, {"securitySchemes", parts_.at("securitySchemes")}}}};
    }

private:
    static std::string lower(std::string_view method) {
        std::string out(method);
        std::ranges::transform(out, out.begin(), [](char c) { return static_cast<char>(c - 'A' + 'a'); });
        return out;
    }

    // What the second word of the path is about.
    static std::string tag(std::string_view path) {
        if (!path.starts_with("/v1/"))
            return "daemon";
        path.remove_prefix(4);
        const std::string_view word = path.substr(0, path.find('/'));
        for (const std::string_view known : {"functions", "secrets", "snapshots", "uploads", "tokens"})
            if (word == known)
                return std::string(word);
        return "daemon";
    }

    // {bearer: [scope]} or the same with basic. An empty list: any token.
    static Json security(const Endpoint& endpoint) {
        Json list = Json::array();
        if (endpoint.of == Of::nobody)
            return list;
        Json scopes = Json::array();
        if (endpoint.of != Of::holder)
            scopes.push_back(store::scope_names(endpoint.scope).front());
        for (const char* scheme : {"bearer", "basic"})
            list.push_back({{scheme, scopes}});
        return list;
    }

    Json parameter(const char* in, std::string_view name) const {
        Json object{{"name", name}, {"in", in}};
        object.update(find(parts_.at(in), in, name));
        if (std::string_view(in) == "path")
            object["required"] = true;
        return object;
    }

    Json parameters(const Endpoint& endpoint) const {
        Json list = Json::array();
        std::string_view path = endpoint.path;
        for (auto brace = path.find('{'); brace != path.npos; brace = path.find('{')) {
            path.remove_prefix(brace + 1);
            list.push_back(parameter("path", path.substr(0, path.find('}'))));
        }
        for (const std::string_view name : names_in(endpoint.interface.query))
            list.push_back(parameter("query", name));
        for (const std::string_view name : names_in(endpoint.interface.headers))
            list.push_back(parameter("header", name));
        return list;
    }

    Json content(std::string_view shape, const char* type = "application/json") const {
        find(shapes_, "shape", shape);
        return {{type, {{"schema", {{"$ref", fmt::format("#/components/schemas/{}", shape)}}}}}};
    }

    Json body(std::string_view name) const {
        if (const auto known = parts_.at("bodies").find(name); known != parts_.at("bodies").end())
            return *known;
        // Without a required member an empty body does as well.
        return {{"required", find(shapes_, "shape", name).contains("required")}, {"content", content(name)}};
    }

    Json reply(const Answer& answer) const {
        const auto known = parts_.at("replies").find(answer.shape);
        Json object = known != parts_.at("replies").end()
                          ? *known
                          : Json{{"description", answer.shape}, {"content", content(answer.shape)}};
        for (const std::string_view name : names_in(answer.headers))
            object["headers"][std::string(name)] = header(name);
        return object;
    }

    Json header(std::string_view name) const {
        return {{"description", find(parts_.at("reply_headers"), "header", name)}, {"schema", {{"type", "string"}}}};
    }

    static Codes problems_of(const Endpoint& endpoint) {
        Codes codes{"bad-value", "busy", "internal"};
        const auto add = [&](std::initializer_list<std::string_view> more) {
            codes.insert(codes.end(), more.begin(), more.end());
        };
        if (endpoint.of == Of::nobody)
            return codes;
        add({"no-token", "wrong-token", "not-permitted", "failed"});
        if (endpoint.of != Of::holder)
            add({"scope-too-small", "not-found"});
        if (endpoint.of == Of::function || endpoint.of == Of::store)
            add({"wrong-prefix"});
        if (endpoint.method != "GET" && endpoint.method != "HEAD")
            add({"too-large", "disk-full", "cluster-away"});
        for (const std::string_view code : names_in(endpoint.interface.problems)) {
            if (std::ranges::find(problem_codes(), code, &ProblemCode::code) == problem_codes().end())
                throw std::logic_error(fmt::format("openapi: there is no code \"{}\"", code));
            codes.push_back(code);
        }
        return codes;
    }

    Json problem(std::string description) const {
        return {{"description", std::move(description)}, {"content", content("Problem", "application/problem+json")}};
    }

    Json replies(const Endpoint& endpoint) const {
        constexpr const char* any = "default";
        std::map<std::string, Json> all;
        for (const Answer& answer : endpoint.interface.replies)
            if (answer.status)
                all[answer.status == kAnyStatus ? any : std::to_string(answer.status)] = reply(answer);
        // Where a function may answer with any status, the status does not tell whose reply it is.
        const bool mixed = all.contains(any);
        std::map<std::string, std::vector<ProblemCode>> problems;
        const Codes codes = problems_of(endpoint);
        for (const ProblemCode& each : problem_codes())
            if (std::ranges::find(codes, each.code) != codes.end())
                problems[mixed ? any : std::to_string(each.status)].push_back(each);
        for (const auto& [status, some] : problems)
            add_problem(all[status], some);
        if (!mixed)
            all[any] = problem("A request that is no proper HTTP, or a server that lacks resources.");
        if (endpoint.method == "HEAD")
            for (auto& [status, object] : all)
                object.erase("content");
        return all;
    }

    // Some statuses have another reply as well (readyz).
    void add_problem(Json& object, const std::vector<ProblemCode>& codes) const {
        if (object.is_null())
            object = {{"description", ""}, {"content", Json::object()}};
        auto text = object.at("description").get<std::string>();
        Json list = Json::array();
        for (const ProblemCode& each : codes) {
            text += fmt::format("{}`{}`: {}", text.empty() ? "" : "; ", each.code, each.meaning);
            list.push_back(each.code);
        }
        object["description"] = text;
        object["content"].update(content("Problem", "application/problem+json"));
        object["x-codes"] = list;
        static constexpr std::pair<std::string_view, const char*> headers[] = {
            {"no-token", "WWW-Authenticate"}, {"changed", "ETag"},     {"wrong-offset", "Upload-Offset"},
            {"bad-range", "Content-Range"},   {"busy", "Retry-After"},
        };
        for (const auto& [code, name] : headers)
            if (std::ranges::find(list, code) != list.end())
                object["headers"][name] = header(name);
    }

    Json operation(const Endpoint& endpoint) const {
        const Interface& interface = endpoint.interface;
        Json object{{"operationId", interface.id},
                    {"summary", endpoint.summary},
                    {"tags", Json::array({tag(endpoint.path)})},
                    {"security", security(endpoint)},
                    {"parameters", parameters(endpoint)}};
        if (!interface.body.empty())
            object["requestBody"] = body(interface.body);
        object["responses"] = replies(endpoint);
        return object;
    }

    const Json parts_;
    Json shapes_;
};

} // namespace

Json openapi_document() { return Document().whole(); }

void openapi(Call& call) {
    static const std::string text = openapi_document().dump() + "\n";
    call.reply_bytes(200, text, {{"Content-Type", "application/json"}, {"Cache-Control", "no-cache"}});
}

} // namespace kvmserver::admin
