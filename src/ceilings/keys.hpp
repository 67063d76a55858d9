// The keys of ceilings: name, member and value syntax. The one list for all code that reads, writes or compares
// ceilings.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/ceilings/ceilings.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"

namespace kvmserver {

namespace ceiling_values {

using nlohmann::json;

[[noreturn]] inline void bad(const std::string& key, const std::string& wanted) {
    throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("{} must be {}", key, wanted));
}

// A string or an array of strings; each is read by `Item`.
template <class Item>
struct List {
    static auto read(const std::string& key, const json& value) {
        std::vector<decltype(Item::read(key, ""))> items;
        const auto add = [&](const json& one) {
            if (!one.is_string())
                bad(key, "a string or an array of strings");
            items.push_back(Item::read(key, one.get<std::string>()));
        };
        if (value.is_array())
            for (const json& one : value)
                add(one);
        else
            add(value);
        return items;
    }
    template <class T>
    static json write(const std::vector<T>& items) {
        json list = json::array();
        for (const T& item : items)
            list.push_back(Item::write(item));
        return list;
    }
};

struct Path {
    static std::string read(const std::string& key, const std::string& text) {
        const tinykvm::PathText path = tinykvm::cut_path(text);
        if (!path.absolute || path.dots || text.find('\0') != text.npos)
            throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                     fmt::format("{}: \"{}\" must be an absolute path without \"..\"", key, text));
        return tinykvm::join_parts(path.parts);
    }
    static std::string write(const std::string& path) { return path; }
};
struct Variable {
    static std::string read(const std::string& key, const std::string& text) {
        if (text.empty() || text.find('*') < text.size() - 1)
            throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                     fmt::format("{}: \"{}\" must be a name, which may end in *", key, text));
        return text;
    }
    static std::string write(const std::string& name) { return name; }
};
struct Address {
    static tinykvm::NetGrant read(const std::string& key, const std::string& text) {
        return tinykvm::parse_net_grant(key, text);
    }
    static std::string write(const tinykvm::NetGrant& grant) { return grant.text; }
};
struct Listening {
    static ListenGrant read(const std::string& key, const std::string& text) { return ListenGrant::parse(key, text); }
    static std::string write(const ListenGrant& grant) { return grant.text; }
};
struct HostFolder {
    static tinykvm::Volume read(const std::string& key, const std::string& text) {
        return tinykvm::parse_volume_grant(key, text);
    }
    static std::string write(const tinykvm::Volume& volume) {
        return fmt::format("{}:{}{}{}", volume.host, volume.read ? "r" : "", volume.write ? "w" : "",
                           volume.execute ? "x" : "");
    }
};

struct Seconds {
    static constexpr double kMax = 366.0 * 86400; // as on the command line
    static double read(const std::string& key, const json& value) {
        const double seconds = value.is_number() ? value.get<double>() : -1;
        if (!std::isfinite(seconds) || seconds <= 0 || seconds > kMax)
            bad(key, fmt::format("a number of seconds above 0, at most {}", kMax));
        return seconds;
    }
    static json write(double seconds) { return seconds; }
};

template <std::uint64_t unit, std::int64_t least = 0>
struct Whole {
    static constexpr std::uint64_t kMax = unit == 1 ? 1ull << 32 : 128ull << 20; // MiB: 128 TiB
    static std::uint64_t read(const std::string& key, const json& value) {
        if (!value.is_number_integer() || value.get<std::int64_t>() < least || value.get<std::uint64_t>() > kMax)
            bad(key, fmt::format("a whole number {}from {} to {}", unit == 1 ? "" : "of MiB ", least, kMax));
        return value.get<std::uint64_t>() * unit;
    }
    static json write(std::uint64_t number) { return number / unit; }
};
using Count = Whole<1>;
using Positive = Whole<1, 1>;
using Mib = Whole<1 << 20>;

} // namespace ceiling_values

// Calls f(name, member, codec) for each key; `member` takes a (const) Ceilings and returns a reference to its
// std::optional.
template <class F>
void each_key(F&& f) {
    using namespace ceiling_values;
#define KVMSERVER_CEILING(name, member, codec)                                                                         \
    f(                                                                                                                 \
        name, [](auto& ceilings) -> auto& { return ceilings.member; }, codec())
    KVMSERVER_CEILING("allow-read", granted.read, List<Path>);
    KVMSERVER_CEILING("allow-write", granted.write, List<Path>);
    KVMSERVER_CEILING("allow-connect", granted.connect, List<Address>);
    KVMSERVER_CEILING("deny-connect", granted.deny_connect, List<Address>);
    KVMSERVER_CEILING("allow-listen", granted.listen, List<Address>);
    KVMSERVER_CEILING("tcp-listen", tcp_listen, List<Listening>);
    KVMSERVER_CEILING("allow-env", env, List<Variable>);
    KVMSERVER_CEILING("volumes", granted.volumes, List<HostFolder>);
    KVMSERVER_CEILING("max-boot-time", boot_seconds, Seconds);
    KVMSERVER_CEILING("max-request-time", request_seconds, Seconds);
    KVMSERVER_CEILING("max-request-total", request_total_seconds, Seconds);
    KVMSERVER_CEILING("max-request-cpu", request_cpu_seconds, Seconds);
    KVMSERVER_CEILING("max-main-memory", memory, Mib);
    KVMSERVER_CEILING("max-address-space", address_space, Mib);
    KVMSERVER_CEILING("max-request-memory", request_memory, Mib);
    KVMSERVER_CEILING("limit-request-memory", keep_memory, Mib);
    KVMSERVER_CEILING("max-open-files", open_files, Count);
    KVMSERVER_CEILING("max-machines", machines, Positive);
    KVMSERVER_CEILING("max-kept-machines", kept_machines, Count);
    KVMSERVER_CEILING("max-queue", queue, Count);
    KVMSERVER_CEILING("max-functions", functions, Count);
    KVMSERVER_CEILING("max-versions", versions, Count);
    KVMSERVER_CEILING("max-disk", disk_bytes, Mib);
    KVMSERVER_CEILING("max-log", log_bytes, Mib);
#undef KVMSERVER_CEILING
}

} // namespace kvmserver
