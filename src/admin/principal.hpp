// Who makes a request, and what they may do.
#pragma once
#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>

#include "src/store/functions/event.hpp"
#include "src/store/functions/tokens.hpp"

namespace kvmserver::admin {

// A user of this host (the server's own uid or root), or the holder of a token.
class Principal {
public:
    static Principal local(uid_t uid) { return Principal(uid); }
    static Principal of(store::TokenInfo token) { return Principal(std::move(token)); }

    // `function` is "" for the store itself.
    bool allows(store::Scope scope, std::string_view function) const {
        return local_ || token_.allows(scope, function);
    }
    // Whether it has the scope for at least some functions.
    bool has(store::Scope scope) const { return local_ || token_.allows(scope, token_.prefix); }
    // Whether it may name only functions with its prefix.
    bool limited() const { return !local_ && !token_.prefix.empty(); }
    std::int64_t id() const { return local_ ? 0 : token_.id; }
    std::string name() const { return local_ ? "local" : token_.name; }
    // As the history names it: a user of this host by name.
    store::Author author() const;
    unsigned scopes() const { return local_ ? 15 : token_.scopes; }
    // JSON; they apply to what it deploys. "": none.
    std::string ceilings() const { return local_ ? "" : token_.ceilings; }
    std::string prefix() const { return local_ ? "" : token_.prefix; }
    // Routes that are granted in addition to its functions' own.
    const std::vector<std::string>& routes() const { return token_.routes; }

private:
    explicit Principal(uid_t uid) : uid_(uid) {}
    explicit Principal(store::TokenInfo token) : local_(false), token_(std::move(token)) {}
    bool local_ = true;
    uid_t uid_ = 0;
    store::TokenInfo token_;
};

} // namespace kvmserver::admin
