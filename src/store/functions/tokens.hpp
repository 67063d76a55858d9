// Bearer tokens of the admin interface. The store keeps only their hashes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/store.hpp"

namespace kvmserver::store {

// Bit flags.
enum Scope : unsigned { kScopeRead = 1, kScopeInvoke = 2, kScopeDeploy = 4, kScopeAdmin = 8 };
unsigned scope_from(std::string_view name); // "read", "invoke", "deploy", "admin"; throws BadValue
std::vector<std::string> scope_names(unsigned scopes);

struct TokenInfo {
    std::int64_t id = 0;
    std::string name;
    unsigned scopes = 0;
    std::string prefix; // valid only for functions of this prefix (in_prefix); "": for all, and for the store itself
    std::int64_t created = 0;
    std::optional<std::int64_t> expires, last_used;
    std::vector<std::string> routes; // routes that it may claim in addition to its functions' own hosts
    std::string ceilings;            // JSON: ceilings of what it deploys; "": none

    // Admin includes all other scopes, deploy includes read. `function` is "" for what concerns no single function.
    bool allows(Scope scope, std::string_view function) const;
};

class Tokens {
public:
    explicit Tokens(Store& store) : store_(store) {}
    // Returns the token, which cannot be retrieved again. Throws BadValue, Conflict (the name is taken).
    std::string create(const std::string& name, unsigned scopes, const std::string& prefix = "",
                       std::optional<std::int64_t> expires = {}, const std::vector<std::string>& routes = {},
                       const std::string& ceilings = "");
    // nullopt when the token is unknown, revoked or expired. Records the time of last use.
    std::optional<TokenInfo> check(std::string_view token);
    std::vector<TokenInfo> list();
    void revoke(const std::string& name);

private:
    Store& store_;
};

} // namespace kvmserver::store
