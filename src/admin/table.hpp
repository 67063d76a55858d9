// Every endpoint, one row each: the dispatcher works from it, and so do the tests, so that none is forgotten.
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

// For whom the scope is needed.
enum class Of {
    nobody,   // open to all who can connect
    holder,   // any token will do, whatever its scopes
    any,      // a scope for some function is enough: the handler keeps to those that the caller may see
    function, // the function of the path, {name}
    store,    // the store itself: no token that is limited to a prefix
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
    const Endpoint* endpoint = nullptr; // null: no such path, or not with this method
    Params params;
    std::string allowed; // "GET, PUT": the methods of the path, when only the method is wrong
};
Match find_endpoint(std::string_view method, const std::vector<std::string>& segments);

} // namespace kvmserver::admin
