#include "src/daemon/sticky.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace kvmserver::daemon {

namespace {

// FNV-1a, folded: the same in each build and on each host.
std::uint64_t hash_of(std::string_view value) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : value)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash ^ hash >> 32;
}

std::string_view value_of(const std::vector<http::Field>& fields, std::string_view name) {
    const auto field =
        std::ranges::find_if(fields, [&](const http::Field& each) { return http::equal_nocase(each.name, name); });
    return field == fields.end() ? std::string_view() : field->value;
}

bool has_several(const Share& share) { return share.version && share.version->facts().machines > 1; }

const Sticky& sticky_of(const FunctionVersion& version) { return version.facts().given->sticky; }

std::shared_ptr<FunctionVersion> machine_of(const std::shared_ptr<FunctionVersion>& version, unsigned machine) {
    return machine == 1 ? version : version->others()[machine - 2];
}

// The machine that a cookie's value names, or 0.
unsigned machine_named(std::string_view value, const FunctionVersion::Facts& version) {
    const std::string beginning = fmt::format("{}-", version.version);
    if (!value.starts_with(beginning))
        return 0;
    value.remove_prefix(beginning.size());
    unsigned machine = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), machine);
    const bool whole = error == std::errc{} && end == value.data() + value.size() && !value.starts_with('0');
    return whole && machine <= version.machines ? machine : 0;
}

} // namespace

unsigned machine_of_cookie(const std::vector<http::Field>& fields, std::string_view name,
                           const FunctionVersion::Facts& version) {
    for (const http::Field& field : fields) {
        if (!http::equal_nocase(field.name, "cookie"))
            continue;
        for (std::string_view rest = field.value; !rest.empty();) { // RFC 6265 section 4.2.1
            const std::size_t end = std::min(rest.find(';'), rest.size());
            const std::string_view pair = http::trimmed(rest.substr(0, end));
            rest.remove_prefix(std::min(rest.size(), end + 1));
            if (pair.size() <= name.size() || !pair.starts_with(name) || pair[name.size()] != '=')
                continue;
            if (const unsigned machine = machine_named(pair.substr(name.size() + 1), version))
                return machine;
        }
    }
    return 0;
}

Choice choose_machine(const std::shared_ptr<FunctionVersion>& version, const Asked& asked) {
    const FunctionVersion::Facts& facts = version->facts();
    if (facts.machines < 2)
        return {version, ""};
    const Sticky& by = sticky_of(*version);
    if (!by.header.empty()) {
        const std::string_view value = value_of(asked.fields, by.header);
        return {machine_of(version, value.empty() ? 1 : static_cast<unsigned>(hash_of(value) % facts.machines) + 1),
                ""};
    }
    if (const unsigned known = machine_of_cookie(asked.fields, by.cookie, facts))
        return {machine_of(version, known), ""};
    const unsigned next = version->next_machine();
    const std::string_view path = asked.path.find(';') == asked.path.npos ? asked.path : "/"; // it ends the attribute
    return {machine_of(version, next),
            fmt::format("Set-Cookie: {}={}-{}; Path={}; HttpOnly; SameSite=Lax{}\r\n", by.cookie, facts.version, next,
                        path, asked.secure ? "; Secure" : "")};
}

Choice choose(const Destination& destination, const Asked& asked) {
    const auto several = std::ranges::find_if(destination.shares, has_several);
    if (several == destination.shares.end())
        return {version_by_share(destination), ""};
    if (destination.shares.size() > 1)
        for (const Share& share : destination.shares) {
            const std::string& cookie = has_several(share) ? sticky_of(*share.version).cookie : "";
            if (!cookie.empty() && machine_of_cookie(asked.fields, cookie, share.version->facts()) != 0)
                return choose_machine(share.version, asked);
        }
    const std::string& header = sticky_of(*several->version).header;
    const std::string_view value = header.empty() ? std::string_view() : value_of(asked.fields, header);
    const auto version = value.empty() ? version_by_share(destination)
                                       : version_by_share(destination, hash_of(value) >> 8); // not the machine's bits
    return version ? choose_machine(version, asked) : Choice{};
}

} // namespace kvmserver::daemon
