// The table of all endpoints. The dispatcher works from it, and so do the tests, so that no endpoint is forgotten.
#pragma once
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

struct Endpoint {
    std::string_view method;
    std::string_view path; // "/v1/functions/{name}"
    Of of = Of::store;
    store::Scope scope = store::kScopeAdmin;
    Handler handler = nullptr;
    std::string_view summary;
};

std::span<const Endpoint> endpoints();

struct Match {
    const Endpoint* endpoint = nullptr; // null: unknown path, or wrong method
    Params params;
    std::string allowed; // "GET, PUT": methods of the path, if only the method is wrong
};
Match find_endpoint(std::string_view method, const std::vector<std::string>& segments);

} // namespace kvmserver::admin
