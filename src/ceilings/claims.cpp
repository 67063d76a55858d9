#include "src/ceilings/claims.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "src/ceilings/keys.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr std::size_t kMaxTold = 20;
constexpr std::string_view kUnixPathRule = "unix:/";

template <class Values>
std::string listed(const nlohmann::json& values, const Values& otherwise) {
    std::string text;
    for (const auto& value : values)
        text += (text.empty() ? "" : ", ") + value.template get<std::string>();
    return text.empty() ? otherwise : text;
}

// The values as a ceilings file writes them.
template <class Codec, class T>
std::string granted_text(const std::optional<std::vector<T>>& values) {
    return listed(ceiling_values::List<Codec>::write(*values), "nothing");
}

bool path_within(const std::string& asked, const std::vector<std::string>& folders) {
    const PathText path = cut_path(asked);
    // With a symlink on the way, ".." may lead anywhere.
    return path.absolute && !path.dots && std::ranges::any_of(folders, [&](const std::string& folder) {
               return is_beneath(join_parts(path.parts), folder);
           });
}

bool variable_within(const std::string& asked, const std::vector<std::string>& patterns) {
    const bool many = asked.ends_with('*');
    const std::string_view name = std::string_view(asked).substr(0, asked.size() - many);
    return std::ranges::any_of(patterns, [&](const std::string& pattern) {
        return pattern == asked ||
               (pattern.ends_with('*') && name.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1)));
    });
}

bool volume_within(const Volume& asked, const std::vector<Volume>& granted) {
    return std::ranges::any_of(granted, [&](const Volume& each) {
        return path_within(asked.host, {each.host}) && (!asked.read || each.read) && (!asked.write || each.write) &&
               (!asked.execute || each.execute);
    });
}

// The address ranges that a permission's rule covers, as NetRules::allows interprets it.
std::vector<NetGrant> ranges_of_rule(const NetRule& rule) {
    NetGrant range;
    range.port = rule.port;
    in_addr four{};
    in6_addr six{};
    if (rule.host.empty())
        return {range};
    if (::inet_pton(AF_INET, rule.host.c_str(), &four) != 1 && ::inet_pton(AF_INET6, rule.host.c_str(), &six) != 1) {
        range.kind = NetGrant::Kind::name;
        range.name = rule.host;
        auto ranges = ranges_of(range); // localhost has known addresses
        return ranges.empty() ? std::vector{range} : ranges;
    }
    const NetAddress address = addresses_of(rule.host).front();
    range.bytes = address.bytes;
    range.bits = !address.is_any() ? 128 : address.is_ipv4() ? 96 : 0;
    if (range.bits == 96)
        std::fill(range.bytes.begin() + 12, range.bytes.end(), 0);
    return {range};
}

bool port_within(std::uint16_t asked, std::uint16_t granted) { return granted == 0 || asked == granted; }

bool net_within(const NetRule& rule, const std::vector<NetGrant>& granted, const std::vector<NetGrant>& denied) {
    if (rule.host.starts_with(kUnixRule)) {
        const std::string name = rule.host.substr(std::string_view(kUnixRule).size());
        return std::ranges::any_of(granted, [&](const NetGrant& each) {
            return each.kind == NetGrant::Kind::unix_path   ? path_within(name, {each.name})
                   : each.kind == NetGrant::Kind::unix_name ? fits_unix_name(name, each.name)
                                                            : false;
        });
    }
    const auto covered = [&](const NetGrant& asked) {
        return std::ranges::any_of(granted, [&](const NetGrant& each) {
            if (!port_within(asked.port, each.port))
                return false;
            if (asked.kind == NetGrant::Kind::name) // its addresses are checked on connect
                return (each.kind == NetGrant::Kind::name && each.name == asked.name) ||
                       (each.kind == NetGrant::Kind::range && each.bits == 0);
            return std::ranges::any_of(ranges_of(each), [&](const NetGrant& range) {
                return range.bits <= asked.bits && in_range(asked.bytes, range.bytes, range.bits);
            });
        });
    };
    const auto meets = [&](const NetGrant& asked) {
        return asked.kind != NetGrant::Kind::name && std::ranges::any_of(denied, [&](const NetGrant& each) {
                   const auto overlap = [&](const NetGrant& range) {
                       const unsigned bits = std::min(range.bits, asked.bits);
                       return in_range(asked.bytes, range.bytes, bits);
                   };
                   return (port_within(asked.port, each.port) || asked.port == 0) &&
                          std::ranges::any_of(ranges_of(each), overlap);
               });
    };
    const auto asked = ranges_of_rule(rule);
    return std::ranges::all_of(asked, [&](const NetGrant& each) { return covered(each) && !meets(each); });
}

std::string rule_text(const NetRule& rule) {
    if (rule.host.starts_with(kUnixRule) || rule.port == 0)
        return rule.host;
    return rule.host.find(':') == rule.host.npos ? fmt::format("{}:{}", rule.host, rule.port)
                                                 : fmt::format("[{}]:{}", rule.host, rule.port);
}

class Comparison {
public:
    Comparison(const Ceilings& ceilings, const Claims& claims) : ceilings_(ceilings), asked_(claims) {}

    std::vector<Excess> run() {
        if (asked_.permissions.all)
            everything();
        else
            permissions();
        volumes();
        limits();
        numbers();
        listening();
        return std::move(found_);
    }

private:
    void add(const std::string& claim, std::string granted, bool fatal = false) {
        if (found_.size() < kMaxTold || fatal)
            found_.push_back({printable(claim), std::move(granted), fatal});
    }

    std::string addresses(const std::optional<std::vector<NetGrant>>& granted,
                          const std::optional<std::vector<NetGrant>>& denied) {
        using List = ceiling_values::List<ceiling_values::Address>;
        std::string text = granted ? granted_text<ceiling_values::Address>(granted) : "*";
        if (denied && !denied->empty())
            text += ", not " + listed(List::write(*denied), "");
        return text;
    }

    // Whether the grants include every address, every abstract name and, if `paths` is set, every path.
    static bool everywhere(const std::vector<NetGrant>& grants, bool paths) {
        const auto there = [&](NetGrant::Kind kind, const char* name) {
            return std::ranges::any_of(grants, [&](const NetGrant& each) {
                return each.kind == kind && each.name == name && each.bits == 0 && each.port == 0;
            });
        };
        return there(NetGrant::Kind::range, "") && there(NetGrant::Kind::unix_name, "@*") &&
               (!paths || there(NetGrant::Kind::unix_path, "/"));
    }

    void everything() {
        const Granted& granted = ceilings_.granted;
        std::string text;
        const auto bound = [&](const char* key, const std::string& value) {
            text += fmt::format("{}{} {}", text.empty() ? "" : "; ", key, value);
        };
        const auto all = [](const std::vector<std::string>& paths) {
            return std::ranges::find(paths, "/") != paths.end();
        };
        if (granted.read && !all(*granted.read))
            bound("allow-read", granted_text<ceiling_values::Path>(granted.read));
        if (granted.write && !all(*granted.write))
            bound("allow-write", granted_text<ceiling_values::Path>(granted.write));
        if ((granted.connect && !everywhere(*granted.connect, false)) ||
            (granted.deny_connect && !granted.deny_connect->empty()))
            bound("allow-connect", addresses(granted.connect, granted.deny_connect));
        if (granted.listen && !everywhere(*granted.listen, true))
            bound("allow-listen", granted_text<ceiling_values::Address>(granted.listen));
        if (ceilings_.env && !variable_within("*", *ceilings_.env))
            bound("allow-env", granted_text<ceiling_values::Variable>(ceilings_.env));
        if (!text.empty())
            add("--allow-all", text);
    }

    void permissions() {
        const Granted& granted = ceilings_.granted;
        const Permissions& asked = asked_.permissions;
        std::vector<std::string> readable, writable;
        if (granted.read) {
            readable = public_paths();
            readable.insert(readable.end(), granted.read->begin(), granted.read->end());
        }
        if (granted.write) {
            writable = *granted.write;
            readable.insert(readable.end(), writable.begin(), writable.end());
        }
        if (granted.read)
            for (const std::string& path : asked.read)
                if (!path_within(path, readable))
                    add("--allow-read=" + path, granted_text<ceiling_values::Path>(granted.read));
        for (const std::string& path : asked.write) {
            if (granted.write && !path_within(path, writable))
                add("--allow-write=" + path, granted_text<ceiling_values::Path>(granted.write));
            else if (!granted.write && granted.read && !path_within(path, *granted.read))
                add("--allow-write=" + path, granted_text<ceiling_values::Path>(granted.read));
        }
        if (granted.connect || granted.deny_connect)
            for (const NetRule& rule : asked.connect)
                if (!net_within(rule, granted.connect.value_or(kAny),
                                granted.deny_connect.value_or(std::vector<NetGrant>{})))
                    add("--allow-connect=" + rule_text(rule), addresses(granted.connect, granted.deny_connect));
        for (const NetRule& rule : asked.listen) {
            if (granted.listen && !net_within(rule, *granted.listen, {}))
                add("--allow-listen=" + rule_text(rule), granted_text<ceiling_values::Address>(granted.listen));
            const auto& paths = granted.write ? granted.write : granted.read;
            if (!granted.listen && paths && rule.host.starts_with(kUnixPathRule) &&
                !path_within(rule.host.substr(kUnixPathRule.size() - 1), *paths))
                add("--allow-listen=" + rule_text(rule), granted_text<ceiling_values::Path>(paths));
        }
        if (ceilings_.env)
            for (const std::string& name : asked.env)
                if (!variable_within(name, *ceilings_.env))
                    add("--allow-env=" + name, granted_text<ceiling_values::Variable>(ceilings_.env));
    }

    void volumes() {
        const Granted& granted = ceilings_.granted;
        for (const Volume& volume : asked_.permissions.volumes) {
            const std::string claim =
                fmt::format("--volume={}:{}:{}{}{}", volume.host, volume.guest, volume.read ? "r" : "",
                            volume.write ? "w" : "", volume.execute ? "x" : "");
            if (granted.volumes) {
                if (!volume_within(volume, *granted.volumes))
                    add(claim, granted_text<ceiling_values::HostFolder>(granted.volumes));
            } else if (granted.read || granted.write) { // volumes without a ceiling of their own have that of paths
                const std::vector<std::string> none;
                const auto& read = granted.read ? *granted.read : none;
                const auto& write = granted.write ? *granted.write : read;
                if (!path_within(volume.host, write) &&
                    (volume.write || (granted.read && !path_within(volume.host, read))))
                    add(claim, granted_text<ceiling_values::Path>(volume.write && granted.write ? granted.write
                                                                                                : granted.read));
            }
        }
    }

    void limits() {
        const Limits& asked = asked_.limits;
        const auto time = [&](const char* option, double value, const std::optional<double>& most) {
            if (most && (value <= 0 || value > *most))
                add(value <= 0 ? fmt::format("{} without end", option) : fmt::format("{}={:.10g}", option, value),
                    fmt::format("{:.10g} s", *most));
        };
        const auto memory = [&](const char* option, std::uint64_t value, const std::optional<std::uint64_t>& most) {
            if (most && value > *most)
                add(fmt::format("{}={}", option, value >> 20), fmt::format("{} MiB", *most >> 20));
        };
        time("--max-boot-time", asked.boot_seconds, ceilings_.boot_seconds);
        time("--max-request-time", asked.request_seconds, ceilings_.request_seconds);
        time("--max-request-total", asked.request_total_seconds, ceilings_.request_total_seconds);
        if (asked.request_cpu_seconds > 0) // no limit is the default, and the ceiling then is the limit
            time("--max-request-cpu", asked.request_cpu_seconds, ceilings_.request_cpu_seconds);
        memory("--max-main-memory", asked.memory, ceilings_.memory);
        memory("--max-address-space", asked.address_space, ceilings_.address_space);
        memory("--max-request-memory", asked.request_memory, ceilings_.request_memory);
        memory("--limit-request-memory", asked.keep_memory, ceilings_.keep_memory);
        if (ceilings_.open_files && asked.open_files > *ceilings_.open_files)
            add(fmt::format("{} open files", asked.open_files), fmt::to_string(*ceilings_.open_files));
        if (ceilings_.memory && asked_.image_bytes > *ceilings_.memory)
            add(fmt::format("{} MiB of memory in the snapshot", asked_.image_bytes >> 20),
                fmt::format("{} MiB", *ceilings_.memory >> 20), true);
    }

    void listening() {
        if (!ceilings_.tcp_listen)
            return;
        for (const ListenAddress& address : asked_.listen)
            if (std::ranges::none_of(*ceilings_.tcp_listen,
                                     [&](const ListenGrant& grant) { return grant.covers(address); }))
                add("function.listen = " + address.text(),
                    granted_text<ceiling_values::Listening>(ceilings_.tcp_listen), true);
    }

    void numbers() {
        const auto number = [&](const char* key, const std::optional<std::uint64_t>& value,
                                const std::optional<std::uint64_t>& most) {
            if (value && most && *value > *most)
                add(fmt::format("{} = {}", key, *value), fmt::to_string(*most));
        };
        const bool keep_state = asked_.keep_state;
        number(keep_state ? "function.scale.machines" : "function.scale.max", asked_.machines, ceilings_.machines);
        number(keep_state ? "function.scale.machines" : "function.scale.min", asked_.kept_machines,
               ceilings_.kept_machines);
        number("function.scale.queue", asked_.queue, ceilings_.queue);
    }

    inline static const std::vector<NetGrant> kAny{NetGrant{}};
    const Ceilings& ceilings_;
    const Claims& asked_;
    std::vector<Excess> found_;
};

} // namespace

namespace {

Claims claims(const Permissions& permissions, const Limits& limits, std::uint32_t frames) {
    Claims claims;
    claims.permissions = permissions;
    claims.limits = limits;
    claims.image_bytes = std::uint64_t{frames} * kPageSize;
    return claims;
}

} // namespace

Claims claims_of(const MachineState& state) { return claims(state.permissions, state.limits, state.frames); }
Claims claims_of(const SnapshotFacts& facts) { return claims(facts.permissions, facts.limits, facts.frames); }

std::vector<Excess> claims_above(const Ceilings& ceilings, const Claims& claims) {
    return Comparison(ceilings, claims).run();
}

std::string text_of(const std::vector<Excess>& all) {
    std::string text;
    for (const Excess& each : all)
        text += fmt::format("{}{} (granted: {})", text.empty() ? "" : "; ", each.claim, each.granted);
    return text;
}

} // namespace kvmserver
