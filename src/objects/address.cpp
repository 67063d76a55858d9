#include "src/objects/address.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tinykvm/base/error.hpp"

namespace kvmserver::objects {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr std::string_view kScheme = "s3://", kForm = "s3://BUCKET[/PREFIX]?endpoint=URL[&region=REGION]";
constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

bool only(std::string_view text, std::string_view more) {
    return std::ranges::all_of(text,
                               [more](char c) { return kPlain.find(c) != kPlain.npos || more.find(c) != more.npos; });
}

bool good_bucket(std::string_view name) {
    return name.size() >= 3 && name.size() <= 63 && only(name, ".-") && kPlain.find(name.front()) != kPlain.npos;
}

// Its parts go into URLs and signatures as they are, so none may need an escape.
bool good_prefix(std::string_view prefix) {
    const bool dots = prefix.find("..") != prefix.npos || ("/" + std::string(prefix) + "/").find("/./") != prefix.npos;
    return prefix.size() <= 512 && only(prefix, "._-/") && prefix.find("//") == prefix.npos && !dots;
}

bool good_endpoint(std::string_view url) {
    for (const std::string_view scheme : {"http://", "https://"})
        if (url.starts_with(scheme))
            return url.size() > scheme.size() && only(url.substr(scheme.size()), ".-_:[]");
    return false;
}

} // namespace

std::string Address::text() const {
    return fmt::format("s3://{}{}{} at {}", bucket, prefix.empty() ? "" : "/", prefix, endpoint);
}

Address parse_address(const std::string& option, const std::string& text) {
    const auto wrong = [&](const std::string& why) {
        return UserError(ExitCode::usage, fmt::format("{}: {}: write {}", option, why, kForm));
    };
    if (text.find('@') != text.npos) // not repeated in the message: it may contain a secret
        throw wrong("credentials do not belong into the address");
    if (!text.starts_with(kScheme))
        throw wrong(fmt::format("'{}' is no bucket", text));
    const auto question = std::min(text.find('?'), text.size());
    std::string_view place(text.data() + kScheme.size(), question - kScheme.size());
    Address address;
    const auto slash = std::min(place.find('/'), place.size());
    address.bucket = place.substr(0, slash);
    place.remove_prefix(std::min(slash + 1, place.size()));
    while (place.ends_with('/'))
        place.remove_suffix(1);
    address.prefix = place;
    if (!good_bucket(address.bucket))
        throw wrong(fmt::format("'{}' is no name of a bucket", address.bucket));
    if (!good_prefix(address.prefix))
        throw wrong(
            fmt::format("the prefix '{}' may have letters, digits, '.', '_', '-' and single '/'", address.prefix));
    std::string_view rest = std::string_view(text).substr(std::min(question + 1, text.size()));
    while (!rest.empty()) {
        const auto end = std::min(rest.find('&'), rest.size());
        const std::string_view pair = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const auto equals = std::min(pair.find('='), pair.size());
        const std::string_view name = pair.substr(0, equals);
        std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
        if (name == "endpoint") {
            while (value.ends_with('/'))
                value.remove_suffix(1);
            address.endpoint = value;
        } else if (name == "region") {
            if (value.empty() || !only(value, "-"))
                throw wrong(fmt::format("'{}' is no region", value));
            address.region = value;
        } else {
            throw wrong(fmt::format("'{}' is neither endpoint nor region", name));
        }
    }
    if (address.endpoint.empty())
        throw wrong("the endpoint is missing");
    if (!good_endpoint(address.endpoint))
        throw wrong(fmt::format("the endpoint '{}' is not http://HOST[:PORT] or https://", address.endpoint));
    return address;
}

} // namespace kvmserver::objects
