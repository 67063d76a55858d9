// The table of all endpoints. The dispatcher, /v1/openapi.json and the tests work from it, so that no endpoint is
// forgotten.
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/functions/tokens.hpp"

namespace kvmserver::admin {

class Call;
using Handler = void (*)(Call&);
using Params = std::map<std::string, std::string, std::less<>>;

// What the endpoint's scope must cover.
enum class Of {
    nobody,   // no scope: open to all who can connect
    holder,   // no scope: any token will do
    any,      // some function: the handler shows only what the caller may see
    function, // the function of the path, {name}
    store,    // the store itself: not for tokens limited to a prefix
};

constexpr unsigned kAnyStatus = 1; // the reply is a function's own

// A successful reply. `shape`: a name in openapi/*.json, "" without a body.
struct Answer {
    unsigned status = 0; // 0: unused
    std::string_view shape;
    std::string_view headers[4] = {};
};

// Names in a list of the table; "" ends it.
template <std::size_t N>
std::span<const std::string_view> names_in(const std::string_view (&list)[N]) {
    return {list, static_cast<std::size_t>(std::ranges::find(list, "") - list)};
}

// What a client needs to know to make the request; the names are those of openapi/*.json. "" ends a list.
struct Interface {
    std::string_view id = {};       // operationId
    std::string_view query[8] = {}; // others are refused
    std::string_view headers[2] = {};
    std::string_view body = {}; // "": none
    Answer replies[2] = {};
    std::string_view problems[20] = {}; // codes, in addition to those that every such endpoint has (openapi.cpp)
};

struct Endpoint {
    std::string_view method;
    std::string_view path; // "/v1/functions/{name}"
    Of of = Of::store;
    store::Scope scope = store::kScopeAdmin;
    Handler handler = nullptr;
    std::string_view summary;
    Interface interface;
};

std::span<const Endpoint> endpoints();

struct Match {
    const Endpoint* endpoint = nullptr; // null: unknown path, or wrong method
    Params params;
    std::string allowed; // "GET, PUT": methods of the path, if only the method is wrong
};
Match find_endpoint(std::string_view method, const std::vector<std::string>& segments);

} // namespace kvmserver::admin
