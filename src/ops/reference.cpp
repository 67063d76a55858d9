#include "src/ops/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "src/store/errors.hpp"
#include "src/store/functions/functions.hpp"

namespace kvmserver::ops {
namespace {

constexpr std::string_view kPrefix = "sha256:";

Digest by_digest(store::Store& store, const std::string& hex) {
    constexpr std::size_t kShortest = 4;
    if (hex.size() < kShortest || hex.find_first_not_of("0123456789abcdef") != hex.npos)
        throw store::BadValue(
            fmt::format("'{}{}' is not a digest: give at least {} hexadecimal digits", kPrefix, hex, kShortest));
    std::optional<Digest> found;
    for (const std::string& file : store.folder().list(store::kSnapshots)) {
        const auto digest = Digest::from_hex(file.substr(0, file.find('.')));
        if (!digest || !file.starts_with(hex))
            continue;
        if (found && *found != *digest)
            throw store::Conflict(
                fmt::format("{}{} is the beginning of several digests: give more digits", kPrefix, hex));
        found = digest;
    }
    if (!found)
        throw store::NotFound(fmt::format("there is no snapshot {}{}", kPrefix, hex));
    return *found;
}

} // namespace

std::uint64_t whole_number(std::string_view text, std::string_view what) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value > INT64_MAX)
        throw store::BadValue(fmt::format("{}: '{}' is not a whole number", what, text));
    return value;
}

std::uint64_t version_number(std::string_view text) {
    return whole_number(text.starts_with('v') ? text.substr(1) : text, "version");
}

Digest find_snapshot(store::Store& store, const std::string& reference) {
    if (reference.starts_with(kPrefix))
        return by_digest(store, reference.substr(kPrefix.size()));
    store::Functions functions(store);
    const auto at = reference.find('@');
    if (at != reference.npos)
        return functions.version(reference.substr(0, at), version_number(reference.substr(at + 1))).snapshot;
    const auto live = functions.describe(reference).live_versions;
    const auto most = std::ranges::max_element(live, {}, &store::VersionInfo::percent);
    if (most == live.end())
        throw store::NotFound(fmt::format("{} has no live version: name one, as {}@1", reference, reference));
    return most->snapshot;
}

} // namespace kvmserver::ops
