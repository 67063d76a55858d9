#include "src/ceilings/ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/ceilings/keys.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/runtime_files.hpp"

namespace kvmserver {

using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

ListenGrant ListenGrant::parse(const std::string& key, const std::string& text) {
    ListenGrant grant;
    grant.text = text;
    const auto colon = text.rfind(':');
    const std::string_view ports = colon == text.npos ? std::string_view() : std::string_view(text).substr(colon + 1);
    const auto dash = ports.find('-');
    const auto port = [](std::string_view digits, std::uint16_t& out) {
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
        return error == std::errc{} && end == digits.data() + digits.size() && out != 0;
    };
    if (!port(ports.substr(0, dash), grant.first) ||
        !port(dash == ports.npos ? ports : ports.substr(dash + 1), grant.last) || grant.last < grant.first)
        throw UserError(ExitCode::usage, fmt::format("{}: \"{}\": write ADDRESS:PORT or ADDRESS:FIRST-LAST, with ports "
                                                     "from 1 to 65535",
                                                     key, text));
    const std::string host = text.substr(0, colon);
    grant.where = tinykvm::parse_net_grant(key, host.empty() ? "*" : host);
    if (grant.where.kind != tinykvm::NetGrant::Kind::range && grant.where.kind != tinykvm::NetGrant::Kind::own_host &&
        grant.where.name != "localhost")
        throw UserError(ExitCode::usage,
                        fmt::format("{}: \"{}\": write an address, such as 127.0.0.1:5000-5999", key, text));
    return grant;
}

bool ListenGrant::covers(const ListenAddress& address) const {
    constexpr unsigned kBits = 128, kBitsBeforeIpv4 = 96;
    // A socket on 0.0.0.0 or :: takes every address.
    const unsigned bits = !address.is_any() ? kBits : address.is_ipv4() ? kBitsBeforeIpv4 : 0;
    return address.port >= first && address.port <= last &&
           std::ranges::any_of(tinykvm::ranges_of(where), [&](const tinykvm::NetGrant& range) {
               return (range.bits <= bits && tinykvm::in_range(address.bytes, range.bytes, range.bits)) ||
                      (range.bits == kBits && range.bytes == address.bytes); // written as 0.0.0.0 or ::
           });
}

Ceilings ceilings_from(const json& object, const std::function<std::string(std::string_view)>& where) {
    if (!object.is_object())
        throw UserError(ExitCode::usage, where("") + "ceilings must be a table");
    Ceilings ceilings;
    std::size_t known = 0;
    each_key([&](const char* name, auto member, auto codec) {
        const auto at = object.find(name);
        if (at == object.end())
            return;
        ++known;
        try {
            member(ceilings) = codec.read(name, *at);
        } catch (const UserError& error) {
            throw UserError(ExitCode::usage, where(name) + error.what());
        }
    });
    if (known == object.size())
        return ceilings;
    for (const auto& [name, value] : object.items()) {
        bool found = false;
        each_key([&found, &name = name](const char* key, auto, auto) { found |= name == key; });
        if (!found) // an unknown key must not look like a ceiling in force
            throw UserError(
                ExitCode::usage,
                fmt::format("{}there is no ceiling \"{}\"; docs/SERVE.md lists the ceilings", where(name), name));
    }
    return ceilings;
}

json to_json(const Ceilings& ceilings) {
    json object = json::object();
    each_key([&](const char* name, auto member, auto codec) {
        if (const auto& value = member(ceilings))
            object[name] = codec.write(*value);
    });
    return object;
}

Ceilings merged(const Ceilings& base, const Ceilings& more) {
    Ceilings result = base;
    each_key([&](const char*, auto member, auto) {
        if (const auto& value = member(more))
            member(result) = value;
    });
    return result;
}

const Ceilings& strangers_ceilings() {
    static const Ceilings all = [] {
        const tinykvm::Limits usual;
        const auto addresses = [](std::initializer_list<const char*> texts) {
            std::vector<tinykvm::NetGrant> grants;
            for (const char* text : texts)
                grants.push_back(tinykvm::parse_net_grant("", text));
            return grants;
        };
        Ceilings ceilings;
        ceilings.granted.read.emplace();
        ceilings.granted.write.emplace();
        ceilings.granted.volumes.emplace();
        ceilings.tcp_listen.emplace();
        ceilings.granted.connect = addresses({"*"});
        ceilings.granted.deny_connect = addresses({"host", "169.254.0.0/16", "fe80::/10"});
        ceilings.granted.listen = addresses({"*"});
        ceilings.boot_seconds = usual.boot_seconds;
        ceilings.request_seconds = usual.request_seconds;
        ceilings.request_total_seconds = usual.request_total_seconds;
        ceilings.memory = usual.memory;
        ceilings.address_space = usual.address_space;
        ceilings.request_memory = usual.request_memory;
        ceilings.keep_memory = usual.keep_memory;
        ceilings.open_files = usual.open_files;
        return ceilings;
    }();
    return all;
}

std::vector<std::string> public_paths() {
    std::vector<std::string> paths = tinykvm::system_files();
    // Interpreters and their packages. Not /usr/local, which may hold the operator's own files.
    for (const char* more : {"/bin", "/usr/bin", "/usr/share"})
        paths.emplace_back(more);
    return paths;
}

tinykvm::Granted granted_by(const Ceilings& ceilings) {
    tinykvm::Granted granted = ceilings.granted;
    if (granted.read) {
        if (!granted.write) // the ceiling on reading also limits writing, but public paths are never writable
            granted.write = granted.read;
        for (std::string& path : public_paths())
            granted.read->push_back(std::move(path));
    }
    return granted;
}

tinykvm::Limits limited_by(const tinykvm::Limits& asked, const Ceilings& ceilings) {
    tinykvm::Limits limits = asked;
    const auto time = [](double& value, const std::optional<double>& most) {
        if (most && (value <= 0 || value > *most)) // 0 means no limit
            value = *most;
    };
    const auto number = [](auto& value, const std::optional<std::uint64_t>& most) {
        if (most && value > *most)
            value = static_cast<std::remove_reference_t<decltype(value)>>(*most);
    };
    time(limits.boot_seconds, ceilings.boot_seconds);
    time(limits.request_seconds, ceilings.request_seconds);
    time(limits.request_total_seconds, ceilings.request_total_seconds);
    time(limits.request_cpu_seconds, ceilings.request_cpu_seconds);
    number(limits.memory, ceilings.memory);
    number(limits.address_space, ceilings.address_space);
    number(limits.request_memory, ceilings.request_memory);
    number(limits.keep_memory, ceilings.keep_memory);
    number(limits.open_files, ceilings.open_files);
    return limits;
}

std::string ceilings_text(const std::vector<Ceilings>& all) {
    if (all.empty())
        return "";
    json list = json::array();
    for (const Ceilings& each : all)
        list.push_back(to_json(each));
    return list.dump();
}

std::vector<Ceilings> ceilings_from_text(std::string_view text) {
    std::vector<Ceilings> all;
    if (text.empty())
        return all;
    const json list = json::parse(text, nullptr, false);
    if (!list.is_array())
        throw UserError(ExitCode::usage, "ceilings are not a list");
    for (const json& each : list)
        all.push_back(ceilings_from(each, [](std::string_view) { return ""; }));
    return all;
}

} // namespace kvmserver
