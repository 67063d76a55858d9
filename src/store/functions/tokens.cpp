#include "src/store/functions/tokens.hpp"

#include <fmt/format.h>

#include "src/common/clock.hpp"
#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/settings_record.hpp"
#include "src/store/functions/tenant.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

constexpr std::string_view kScopes[] = {"read", "invoke", "deploy", "admin"};
constexpr std::string_view kColumns =
    "SELECT id, name, scopes, prefix, created, expires, last_used, routes, ceilings FROM token ";
constexpr std::int64_t kUseStepMs = 60'000; // resolution of last_used: no write for every request

TokenInfo read_token(const Statement& row) {
    TokenInfo token{row.integer(0),
                    row.text(1),
                    static_cast<unsigned>(row.natural(2)),
                    row.text(3),
                    row.integer(4),
                    {},
                    {},
                    split_words(row.text(7)),
                    row.text(8)};
    if (!row.is_null(5))
        token.expires = row.integer(5);
    if (!row.is_null(6))
        token.last_used = row.integer(6);
    return token;
}

} // namespace

unsigned scope_from(std::string_view name) {
    for (unsigned i = 0; i < std::size(kScopes); ++i)
        if (name == kScopes[i])
            return 1u << i;
    throw BadValue(fmt::format("scope \"{}\": use read, invoke, deploy or admin", tinykvm::brief(name)));
}

std::vector<std::string> scope_names(unsigned scopes) {
    std::vector<std::string> names;
    for (unsigned i = 0; i < std::size(kScopes); ++i)
        if (scopes & 1u << i)
            names.emplace_back(kScopes[i]);
    return names;
}

bool TokenInfo::allows(Scope scope, std::string_view function) const {
    if (!in_prefix(function, prefix))
        return false;
    return (scopes & (scope | kScopeAdmin)) != 0 || (scope == kScopeRead && (scopes & kScopeDeploy) != 0);
}

std::string Tokens::create(const std::string& name, unsigned scopes, const std::string& prefix,
                           std::optional<std::int64_t> expires, const std::vector<std::string>& routes,
                           const std::string& ceilings) {
    if (name.empty() || name.size() > 128 || tinykvm::brief(name) != name)
        throw BadValue("token name: give 1 to 128 printable characters");
    if (scopes == 0 || scopes > 15)
        throw BadValue("token: give it at least one scope: read, invoke, deploy or admin");
    check_prefix(prefix);
    if (prefix.empty() && !routes.empty())
        throw BadValue("token: without a prefix it may claim any route: give it a prefix, or no routes");
    std::vector<std::string> granted;
    granted.reserve(routes.size());
    for (const std::string& route : routes)
        granted.push_back(Route::parse(route).text());
    std::string token = "kvs_" + random_hex(32);
    SettingsChange change(store_);
    if (change.database().prepare("SELECT 1 FROM token WHERE name = ?").bind(name).step())
        throw Conflict(fmt::format("there is a token {} already: choose another name or revoke it", name));
    change.database()
        .prepare("INSERT INTO token (name, hash, scopes, prefix, created, expires, routes, ceilings) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(name)
        .bind(sha256(token))
        .bind(std::int64_t{scopes})
        .bind(prefix)
        .bind(now_ms())
        .bind(expires)
        .bind(joined_words(granted))
        .bind(ceilings)
        .run();
    change.commit();
    return token;
}

std::optional<TokenInfo> Tokens::check(std::string_view token) {
    // Looked up by hash, so that the time it takes reveals nothing about existing tokens.
    const Digest hash = sha256(token);
    auto index = store_.index();
    TokenInfo info;
    {
        auto found = index->prepare(std::string(kColumns) + "WHERE hash = ?");
        if (!found.bind(hash).step())
            return std::nullopt;
        info = read_token(found);
    }
    const std::int64_t now = now_ms();
    if (info.expires && *info.expires <= now)
        return std::nullopt;
    if (!info.last_used || now - *info.last_used >= kUseStepMs) {
        try {
            index->prepare("UPDATE token SET last_used = ? WHERE id = ?").bind(now).bind(info.id).run();
        } catch (const HostError&) { // a full disk must not lock users out
        } catch (const UserError&) {
        }
    }
    return info;
}

std::vector<TokenInfo> Tokens::list() {
    auto index = store_.index();
    std::vector<TokenInfo> tokens;
    auto rows = index->prepare(std::string(kColumns) + "ORDER BY name");
    while (rows.step())
        tokens.push_back(read_token(rows));
    return tokens;
}

void Tokens::revoke(const std::string& name) {
    SettingsChange change(store_);
    change.database().prepare("DELETE FROM token WHERE name = ?").bind(name).run();
    if (change.database().changes() == 0)
        throw NotFound(fmt::format("there is no token {}", tinykvm::brief(name)));
    change.commit();
}

} // namespace kvmserver::store
