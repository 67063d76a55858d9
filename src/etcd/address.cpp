#include "src/etcd/address.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "tinykvm/base/error.hpp"

namespace kvmserver::etcd {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr std::string_view kScheme = "etcd://", kForm = "etcd://HOST:PORT[,HOST:PORT...][/PREFIX][?tls=yes][&ca=FILE]";
constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
constexpr std::size_t kMostEndpoints = 16, kLongestHost = 253, kLongestPrefix = 256;

UserError wrong_address(const std::string& why) {
    return UserError(ExitCode::usage, fmt::format("etcd's address: {}: write {}", why, kForm));
}

bool has_only(std::string_view text, std::string_view more) {
    return std::ranges::all_of(text,
                               [more](char c) { return kPlain.find(c) != kPlain.npos || more.find(c) != more.npos; });
}

// Takes what comes before the first `separator` from `text`, and the separator.
std::string_view take_until(std::string_view& text, char separator) {
    const auto end = std::min(text.find(separator), text.size());
    const std::string_view taken = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return taken;
}

bool good_host(std::string_view host) {
    if (host.starts_with('[')) // of IPv6
        return host.size() > 4 && host.ends_with(']') && has_only(host.substr(1, host.size() - 2), ":.");
    return !host.empty() && host.size() <= kLongestHost && has_only(host, ".-") && host.front() != '-';
}

bool good_port(std::string_view port) {
    std::uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    return error == std::errc() && end == port.data() + port.size() && number != 0;
}

std::vector<std::string> endpoints_in(std::string_view list) {
    std::vector<std::string> endpoints;
    if (list.empty())
        throw wrong_address("HOST:PORT is missing");
    if (list.ends_with(','))
        throw wrong_address("there is a ',' too many");
    while (!list.empty()) {
        const std::string_view endpoint = take_until(list, ',');
        const auto colon = endpoint.rfind(':');
        if (colon == endpoint.npos || !good_host(endpoint.substr(0, colon)) || !good_port(endpoint.substr(colon + 1)))
            throw wrong_address(fmt::format("'{}' is not HOST:PORT", endpoint));
        endpoints.emplace_back(endpoint);
    }
    if (endpoints.size() > kMostEndpoints)
        throw wrong_address(fmt::format("it has more than {} endpoints", kMostEndpoints));
    return endpoints;
}

std::string prefix_of(std::string_view text) {
    while (text.ends_with('/'))
        text.remove_suffix(1);
    if (text.starts_with('/') || text.find("//") != text.npos || text.size() > kLongestPrefix ||
        !has_only(text, "._-/"))
        throw wrong_address(fmt::format(
            "the prefix '{}' may have at most {} letters, digits, '.', '_', '-' and single '/'", text, kLongestPrefix));
    return std::string(text) + "/";
}

} // namespace

std::string Address::text() const { return fmt::format("etcd at {}", fmt::join(endpoints, ", ")); }

Address parse_address(std::string_view text) {
    if (text.find('@') != text.npos) // not repeated in the message: it may contain a secret
        throw wrong_address("credentials do not belong into it");
    if (!text.starts_with(kScheme))
        throw wrong_address(fmt::format("'{}' does not begin with {}", text, kScheme));
    std::string_view options = text.substr(kScheme.size());
    std::string_view place = take_until(options, '?');
    Address address;
    address.endpoints = endpoints_in(take_until(place, '/'));
    if (!place.empty())
        address.prefix = prefix_of(place);
    bool tls = false;
    while (!options.empty()) {
        std::string_view value = take_until(options, '&');
        const std::string_view name = take_until(value, '=');
        if (name == "tls" && (value == "yes" || value == "no"))
            tls = value == "yes";
        else if (name == "tls")
            throw wrong_address(fmt::format("tls={} is neither yes nor no", value));
        else if (name == "ca" && !value.empty())
            address.ca_file = value;
        else if (name == "ca")
            throw wrong_address("ca= names no file");
        else
            throw wrong_address(fmt::format("'{}' is neither tls nor ca", name));
    }
    if (!address.ca_file.empty() && !tls)
        throw wrong_address("ca is of use with tls=yes alone");
    for (std::string& endpoint : address.endpoints)
        endpoint.insert(0, tls ? "https://" : "http://");
    return address;
}

} // namespace kvmserver::etcd
