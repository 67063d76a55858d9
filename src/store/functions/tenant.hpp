// A tenant: who holds a token that is limited to functions whose names begin with a prefix. What is a
// tenant's by its prefix, and what the operator grants it beyond that.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/store/functions/names.hpp"

namespace kvmserver::store {

// "" has every name, "a-" those that begin with it, "a" has "a" itself and what begins with "a-": never "ab".
bool in_prefix(std::string_view name, std::string_view prefix);
// Throws BadValue for what no function's name begins with.
void check_prefix(std::string_view prefix);

// Functions by name: "NAME", "PREFIX-*", or "*" for all.
void check_name_pattern(std::string_view pattern); // throws BadValue
bool fits_pattern(std::string_view name, std::string_view pattern);
bool fits_any(std::string_view name, const std::vector<std::string>& patterns);

// Whether the host is one that the prefix's functions have by their names: NAME.localhost, or below it.
bool is_own_host(std::string_view host, std::string_view prefix);
// Whether all requests of `claim` are such as `grant` names. A grant for any host ("/a/*") is for claims of any
// host only: as "any but those that others have" is not what it says.
bool covers(const Route& grant, const Route& claim);

// Words with a space between them, as a column holds them.
std::string joined_words(const std::vector<std::string>& words);
std::vector<std::string> split_words(std::string_view text);

} // namespace kvmserver::store
