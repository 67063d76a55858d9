// One request to the API, as its handler sees it.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/admin/api.hpp"
#include "src/admin/problem.hpp"
#include "src/store/functions/functions.hpp"

namespace kvmserver::admin {

using nlohmann::json;

// Reads the members of a JSON object strictly. Throws BadValue that names the member.
class Members {
public:
    explicit Members(json object);
    std::optional<std::string> text(const char* name);
    std::string need_text(const char* name);
    std::optional<std::uint64_t> natural(const char* name);
    std::uint64_t need_natural(const char* name);
    std::optional<bool> flag(const char* name);
    std::optional<json> any(const char* name);
    std::optional<std::vector<std::string>> texts(const char* name);
    std::string message(); // "message", for the history; "" if it is missing
    void done() const;     // throws if a member was never asked for

private:
    json object_;
};

class Call {
public:
    Call(Api& to, const Request& with, const Principal& by, const Params& path, Exchange& over)
        : api(to), request(with), who(by), exchange(over), params_(path) {}

    Api& api;
    const Request& request;
    const Principal& who;
    Exchange& exchange;

    store::Store& store() { return api.store(); }
    store::Functions functions() { return store::Functions(store(), who.author()); } // changes are the caller's
    const std::string& param(const char* name) const { return params_.at(name); }
    bool has_param(const char* name) const { return params_.contains(name); }
    std::optional<std::string> query(const char* name) const;
    bool query_flag(const char* name) const;
    std::optional<std::uint64_t> query_number(const char* name) const;
    std::uint64_t version_param() const;

    std::string body(std::size_t max_bytes);
    // The JSON object of the body; an empty body is an empty object. Throws BadValue if it has more than `values`
    // values.
    Members members(std::size_t max_bytes = 4u << 20, std::size_t values = 20'000);
    void no_members(); // throws BadValue for a body with members: everything is in the query
    // From If-Match and If-None-Match. Throws Refused for anything that cannot be compared.
    store::IfMatch if_match() const;

    void reply(unsigned status, const json& document, Headers headers = {});
    void reply_empty(unsigned status, const Headers& headers = {});
    void reply_bytes(unsigned status, std::string_view bytes, const Headers& headers);

private:
    const Params& params_;
};

// Parses "sha256:HEX" or HEX. Throws BadValue.
Digest digest_from(std::string_view text, const char* what);
std::uint64_t number_from(std::string_view text, std::string_view what);

} // namespace kvmserver::admin
