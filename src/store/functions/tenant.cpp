#include "src/store/functions/tenant.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {
namespace {

constexpr std::string_view kOwnDomain = ".localhost";

// Whether the text is a function's name or the beginning of one.
bool begins_a_name(std::string_view text) {
    const auto last = text.find_last_not_of('-');
    return text.size() <= 63 && last != text.npos && is_function_name(text.substr(0, last + 1));
}

} // namespace

bool in_prefix(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix))
        return false;
    return prefix.empty() || prefix.ends_with('-') || name.size() == prefix.size() || name[prefix.size()] == '-';
}

void check_prefix(std::string_view prefix) {
    if (!prefix.empty() && !begins_a_name(prefix))
        throw BadValue(fmt::format("prefix \"{}\": it cannot begin a function's name: use up to 63 of a-z, 0-9 "
                                   "and -, as in \"team-\"",
                                   tinykvm::brief(prefix)));
}

void check_name_pattern(std::string_view pattern) {
    const bool many = pattern.ends_with("-*");
    if (pattern != "*" && !(many ? begins_a_name(pattern.substr(0, pattern.size() - 1)) : is_function_name(pattern)))
        throw BadValue(fmt::format("\"{}\" names no functions: write NAME, PREFIX-* or *", tinykvm::brief(pattern)));
}

bool fits_pattern(std::string_view name, std::string_view pattern) {
    if (!pattern.ends_with('*'))
        return name == pattern;
    return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool fits_any(std::string_view name, const std::vector<std::string>& patterns) {
    return std::ranges::any_of(patterns, [&](const std::string& pattern) { return fits_pattern(name, pattern); });
}

bool is_own_host(std::string_view host, std::string_view prefix) {
    if (!host.ends_with(kOwnDomain))
        return false;
    host.remove_suffix(kOwnDomain.size());
    if (const auto dot = host.rfind('.'); dot != host.npos)
        host.remove_prefix(dot + 1);
    return is_function_name(host) && in_prefix(host, prefix);
}

bool covers(const Route& grant, const Route& claim) {
    const bool below = grant.host.starts_with("*.");
    if (grant.host != claim.host && !(below && claim.host.size() > grant.host.size() - 1 &&
                                      claim.host.ends_with(std::string_view(grant.host).substr(1))))
        return false;
    if (!claim.path.starts_with(grant.path))
        return false;
    return grant.path.ends_with('/') || claim.path.size() == grant.path.size() || claim.path[grant.path.size()] == '/';
}

std::string joined_words(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::vector<std::string> split_words(std::string_view text) {
    std::vector<std::string> words;
    while (!text.empty()) {
        const auto space = text.find(' ');
        if (space != 0)
            words.emplace_back(text.substr(0, space));
        text = space == text.npos ? std::string_view() : text.substr(space + 1);
    }
    return words;
}

} // namespace kvmserver::store
