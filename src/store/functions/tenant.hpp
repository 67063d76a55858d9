// Tenants. A tenant holds a token that is limited to functions whose names begin with a prefix. The checks below decide
// what belongs to a tenant by its prefix, and what the operator grants it beyond that.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/store/functions/names.hpp"

namespace kvmserver::store {

// Whether a name belongs to a prefix. "" has every name, "a-" those that begin with it, "a" has "a" itself and those
// that begin with "a-", but not "ab".
bool in_prefix(std::string_view name, std::string_view prefix);
// Throws BadValue if no function's name can begin with the prefix.
void check_prefix(std::string_view prefix);

// Patterns for function names: "NAME", "PREFIX-*", or "*" for all.
void check_name_pattern(std::string_view pattern); // throws BadValue
bool fits_pattern(std::string_view name, std::string_view pattern);
bool fits_any(std::string_view name, const std::vector<std::string>& patterns);

// Whether the host belongs to a function of the prefix by its name: NAME.localhost, or a host below it.
bool is_own_host(std::string_view host, std::string_view prefix);
// Whether `grant` matches all requests that `claim` matches. A grant for any host ("/a/*") covers only claims for any
// host, because it does not mean "any host except those of other functions".
bool covers(const Route& grant, const Route& claim);

// Words separated by single spaces, as stored in a column.
std::string joined_words(const std::vector<std::string>& words);
std::vector<std::string> split_words(std::string_view text);

} // namespace kvmserver::store
