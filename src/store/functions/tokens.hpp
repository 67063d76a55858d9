// Bearer tokens of the admin interface. The store keeps their hashes only.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/store.hpp"

namespace kvmserver::store {

// A set of these is their sum.
enum Scope : unsigned { kScopeRead = 1, kScopeInvoke = 2, kScopeDeploy = 4, kScopeAdmin = 8 };
unsigned scope_from(std::string_view name); // "read", "invoke", "deploy", "admin"; throws BadValue
std::vector<std::string> scope_names(unsigned scopes);

struct TokenInfo {
    std::int64_t id = 0;
    std::string name;
    unsigned scopes = 0;
    std::string prefix; // good only for functions that it has (in_prefix); "": for all, and for the store itself
    std::int64_t created = 0;
    std::optional<std::int64_t> expires, last_used;
    std::vector<std::string> routes; // that it may claim beside those of its functions' own hosts
    std::string ceilings;            // of what it deploys, JSON; "": none

    // Admin may do everything, deploy may read. `function` is "" for what concerns no single function.
    bool allows(Scope scope, std::string_view function) const;
};

class Tokens {
public:
    explicit Tokens(Store& store) : store_(store) {}
    // The token: shown once, not to be had again. Throws BadValue, Conflict (the name is taken).
    std::string create(const std::string& name, unsigned scopes, const std::string& prefix = "",
                       std::optional<std::int64_t> expires = {}, const std::vector<std::string>& routes = {},
                       const std::string& ceilings = "");
    // Whose it is; nothing when it is unknown, revoked or has expired.
    std::optional<TokenInfo> check(std::string_view token);
    std::vector<TokenInfo> list();
    void revoke(const std::string& name);

private:
    Store& store_;
};

} // namespace kvmserver::store
