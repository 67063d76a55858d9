#include "src/ceilings/ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/ceilings/keys.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/runtime_files.hpp"

namespace kvmserver {

using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

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
