#include "src/cli/options/options_from.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/cli/help/nearest.hpp"
#include "src/cli/options/option_table.hpp"
#include "src/cli/options/warmup_file.hpp"
#include "src/cli/paths.hpp"
#include "src/snapshot/codec.hpp"
#include "src/snapshot/folder_cache.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/memory/huge_pages.hpp"

namespace kvmserver::cli {
namespace {

constexpr std::uint64_t kMaxMib = 128ull << 20; // 128 TiB, the lower half of the address space
constexpr std::uint64_t kMaxThreads = 4096;
constexpr std::uint64_t kMaxWarmup = 1'000'000;
constexpr double kMaxSeconds = 366.0 * 86400;

std::uint64_t whole_of(const Setting& setting, std::string_view name, std::uint64_t lowest, std::uint64_t highest,
                       std::string_view unit = "", std::string_view or_else = "") {
    const std::string& text = setting.values.front();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest)
        usage_error(fmt::format("{}: '{}' is not a whole number {}from {} to {}{}", setting.label(name), text, unit,
                                lowest, highest, or_else));
    return value;
}

class Converter {
public:
    Converter(Settings& settings, std::string folder, unsigned cpus)
        : settings_(settings), folder_(std::move(folder)), cpus_(cpus) {}

    Options convert() {
        refuse_mixed_permissions();
        switches();
        numbers();
        texts();
        permissions();
        check_unused();
        for (const auto& [name, setting] : settings_)
            options_.given.push_back(name);
        return std::move(options_);
    }

private:
    Setting* find(std::string_view name) {
        const auto at = settings_.find(name);
        return at == settings_.end() ? nullptr : &at->second;
    }

    void refuse_mixed_permissions() {
        if (!is_set(settings_, "allow-all"))
            return;
        for (const std::string_view name : narrow_permissions())
            if (const Setting* narrow = find(name); narrow && !narrow->values.empty())
                usage_error(fmt::format("{} excludes {}; give one of them", find("allow-all")->label("allow-all"),
                                        narrow->label(name)));
    }

    void flag(std::string_view name, bool& target, bool when_set = true) {
        const Setting* setting = find(name);
        if (!setting)
            return;
        const std::string& value = setting->values.front();
        if (value != "true" && value != "false")
            usage_error(fmt::format("{}: '{}' is neither true nor false", setting->label(name), value));
        target = (value == "true") == when_set;
    }

    std::uint64_t whole(std::string_view name, std::uint64_t lowest, std::uint64_t highest, std::uint64_t unset,
                        std::string_view unit = "", std::string_view or_else = "") {
        const Setting* setting = find(name);
        return setting ? whole_of(*setting, name, lowest, highest, unit, or_else) : unset;
    }

    void mib(std::string_view name, std::uint64_t& bytes, std::uint64_t lowest) {
        bytes = whole(name, lowest, kMaxMib, bytes >> 20, "of MiB ") << 20;
    }

    void seconds(std::string_view name, double& target) {
        const Setting* setting = find(name);
        if (!setting)
            return;
        const std::string& text = setting->values.front();
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0 ||
            value > kMaxSeconds)
            usage_error(fmt::format("{}: '{}' is not a number of seconds above 0", setting->label(name), text));
        target = value;
    }

    void text(std::string_view name, std::string& target) {
        const Setting* setting = find(name);
        if (!setting)
            return;
        if (setting->values.front().empty())
            usage_error(setting->label(name) + ": the value is empty");
        target = setting->values.front();
    }

    // One of the words that the table names.
    void choice(std::string_view name, std::string& target) {
        text(name, target);
        const Setting* setting = find(name);
        if (!setting)
            return;
        std::string words(find_option(machine_options(), name)->value);
        std::ranges::replace(words, '|', ',');
        const std::vector<std::string> known = split_commas(words);
        if (std::ranges::find(known, target) == known.end()) {
            const std::string hint = did_you_mean(target, known);
            usage_error(
                fmt::format("{}: '{}' is not {}{}", setting->label(name), target, fmt::join(known, ", "), hint));
        }
    }

    void switches() {
        flag("ephemeral", options_.ephemeral);
        flag("http", options_.http);
        flag("dev", options_.dev);
        options_.http |= options_.dev;
        bool dev_direct = false;
        flag("dev-direct", dev_direct);
        options_.dev |= dev_direct;          // without the HTTP front
        options_.ephemeral |= options_.http; // every request gets a clean machine
        flag("no-listen", options_.no_listen);
        flag("server-first", options_.server_first);
        if (options_.http && options_.server_first)
            usage_error("--server-first excludes --http, where the client speaks first; give one of them");
        flag("stats", options_.stats);
        flag("check-reset", options_.check_reset);
        flag("code-as-is", options_.code_as_is);
        flag("temporary", options_.temporary);
        flag("strict-unique", options_.strict_unique);
        flag("no-ephemeral-keep-working-memory", options_.keep_working_memory, false);
        flag("no-executable-heap", options_.limits.executable_heap, false);
        flag("verbose", options_.verbose.general);
        flag("verbose-syscalls", options_.verbose.syscalls);
        flag("verbose-mmap-syscalls", options_.verbose.mmap);
        flag("verbose-thread-syscalls", options_.verbose.threads);
        flag("verbose-pagetables", options_.verbose.pagetables);
    }

    void numbers() {
        options_.threads = static_cast<unsigned>(whole("threads", 0, kMaxThreads, options_.threads));
        if (options_.threads == 0) {
            options_.threads = std::max(1u, cpus_);
            find("threads")->values = {fmt::to_string(options_.threads)};
        }
        const Setting* warmup = find("warmup");
        options_.warmup_auto = warmup && warmup->values.front() == "auto";
        if (!options_.warmup_auto)
            options_.warmup = static_cast<unsigned>(whole("warmup", 0, kMaxWarmup, options_.warmup, "", " or auto"));
        seconds("max-warmup-time", options_.warmup_seconds);
        options_.level = static_cast<int>(whole("level", 1, 22, 0));
        bool hurry = false;
        flag("hurry", hurry);
        if (hurry && options_.level == 0)
            options_.level = kQuickLevel;
        tinykvm::Limits& limits = options_.limits;
        seconds("max-boot-time", limits.boot_seconds);
        seconds("max-request-time", limits.request_seconds);
        seconds("max-request-total", limits.request_total_seconds);
        seconds("max-request-cpu", limits.request_cpu_seconds);
        mib("max-main-memory", limits.memory, 1);
        mib("max-address-space", limits.address_space, 1);
        mib("max-request-memory", limits.request_memory, 1);
        mib("limit-request-memory", limits.keep_memory, 0);
        huge_pages();
        if (!find("max-address-space")) // more memory than addresses is no use
            limits.address_space = std::max(limits.address_space, limits.memory);
    }

    // Sizes are rounded up to whole huge pages.
    void huge_pages() {
        const auto rounded = [](std::uint64_t bytes) {
            return (bytes + tinykvm::kHugePageBytes - 1) & ~(tinykvm::kHugePageBytes - 1);
        };
        bool all = false, transparent = false;
        flag("hugepages", all);
        flag("transparent-hugepages", transparent);
        HugePages& pages = options_.huge_pages;
        pages.reserved = !transparent;
        std::uint64_t& arena = options_.limits.request_arena;
        mib("hugepage-requests-arena", arena, 0);
        arena = rounded(arena);
        mib("hugepage-arena-size", pages.main, 0);
        pages.main = rounded(pages.main);
        if (pages.main == 0 && (all || transparent))
            pages.main = ~std::uint64_t{0};
    }

    void texts() {
        options_.cwd = folder_;
        text("cwd", options_.cwd);
        options_.cwd = absolute_path(folder_, options_.cwd);
        if (Setting* cwd = find("cwd"))
            cwd->values = {options_.cwd};
        text("output", options_.snapshot_file);
        text("early", options_.early.file);
        choice("cpu", options_.cpu);
        choice("clock", options_.clock);
        choice("fork", options_.fork);
        choice("reset", options_.reset);
        std::string walls(jail::text_of(options_.jail));
        choice("jail", walls);
        options_.jail = *jail::mode_of(walls);
        warmup_requests();
        text("before-snapshot", options_.before_snapshot);
        if (const std::string& path = options_.before_snapshot; !path.empty())
            if (const std::string_view wrong = wrong_with_target(path); !wrong.empty())
                usage_error(fmt::format("{}: '{}' {}", find("before-snapshot")->label("before-snapshot"),
                                        tinykvm::printable(path), wrong));
        text("listen", options_.listen);
        if (const Setting* listen = find("listen"))
            check_listen(listen->label("listen"));
        if (Setting* folder = find("core-dump")) {
            text("core-dump", options_.core_dump);
            folder->values = {options_.core_dump = absolute_path(folder_, options_.core_dump)};
        }
        environment();
        cache();
        debugging();
    }

    void warmup_requests() {
        const Setting* const paths = find("warmup-path");
        Setting* const file = find("warmup-requests");
        if (paths && file)
            usage_error(fmt::format("{} excludes {}; write the path into the file", file->label("warmup-requests"),
                                    paths->label("warmup-path")));
        if (paths) {
            options_.warmup_requests.clear();
            for (const std::string& target : paths->values) {
                if (const std::string_view wrong = wrong_with_target(target); !wrong.empty())
                    usage_error(
                        fmt::format("{}: '{}' {}", paths->label("warmup-path"), tinykvm::printable(target), wrong));
                options_.warmup_requests.push_back({.method = "GET", .target = target, .fields = {}, .body = {}});
            }
        }
        if (file) {
            file->values = {absolute_path(folder_, file->values.front())};
            options_.warmup_requests = read_warmup_requests(file->values.front());
        }
    }

    void debugging() {
        text("gdb", options_.gdb);
        if (options_.gdb.starts_with(tinykvm::kUnixRule))
            options_.gdb = unix_rule(options_.gdb);
        // gdb is to see, and to put breakpoints into, what the program consists of.
        options_.code_as_is |= !options_.gdb.empty();
        text("request", options_.request_file);
        if (!options_.request_file.empty())
            options_.request_file = absolute_path(folder_, options_.request_file);
    }

    void cache() {
        options_.cache = kvmserver::default_cache_folder();
        text("cache", options_.cache);
        if (const Setting* setting = find("cache"))
            options_.cache = setting->values.front() == "none" ? "" : absolute_path(folder_, setting->values.front());
    }

    void check_listen(const std::string& label) {
        const std::string& address = options_.listen;
        if (address.starts_with(tinykvm::kUnixRule)) {
            options_.listen = unix_rule(address);
            return;
        }
        tinykvm::parse_net_rule(label, address);
        const bool bare_ipv6 = address[0] != '[' && std::ranges::count(address, ':') > 1;
        if (bare_ipv6 || address.ends_with(']') || address.find(':') == address.npos)
            usage_error(fmt::format("{}={}: a port is missing; write {}:PORT", label, address,
                                    bare_ipv6 ? "[" + address + "]" : address));
    }

    // K=V; of the same name the last one counts.
    void environment() {
        variables("env", options_.env, [](const Setting& setting, const std::string& item) -> std::string {
            usage_error(fmt::format("{}: '{}' is not K=V; to pass the host's on: --allow-env={}", setting.label("env"),
                                    item, item));
        });
        variables("late-env", options_.late_env, [this](const Setting&, const std::string& item) {
            const auto at_boot = std::ranges::find_if(
                options_.env, [&](const std::string& given) { return given.starts_with(item + "="); });
            return at_boot == options_.env.end() ? item + "=" : *at_boot;
        });
    }

    // `bare` for those without "=".
    template <typename Bare>
    void variables(const char* option, std::vector<std::string>& target, Bare&& bare) {
        const Setting* setting = find(option);
        if (!setting)
            return;
        for (const std::string& given : setting->values) {
            const std::string item = given.find('=') == given.npos ? bare(*setting, given) : given;
            const auto equals = item.find('=');
            if (equals == 0)
                usage_error(fmt::format("{}: '{}' has no name", setting->label(option), item));
            std::erase_if(target, [&](const std::string& old) { return old.starts_with(item.substr(0, equals + 1)); });
            target.push_back(item);
        }
    }

    template <typename Item>
    void items(std::string_view name, Item&& each) {
        Setting* setting = find(name);
        if (!setting)
            return;
        const std::string label = setting->label(name);
        for (std::string& item : setting->values) {
            if (item.empty())
                usage_error(label + ": an item is empty");
            each(label, item);
        }
    }

    template <typename T>
    static void add(std::vector<T>& list, T item) {
        if (std::ranges::find(list, item) == list.end())
            list.push_back(std::move(item));
    }

    void permissions() {
        tinykvm::Permissions& allowed = options_.permissions;
        flag("allow-all", allowed.all);
        items("allow-read", [&](const std::string&, std::string& item) { add(allowed.read, path(item)); });
        items("allow-write", [&](const std::string&, std::string& item) { add(allowed.write, path(item)); });
        items("allow-env", [&](const std::string& label, std::string& item) {
            check_env_name(label, item);
            add(allowed.env, item);
        });
        items("allow-net", [&](const std::string& label, std::string& item) {
            add(allowed.connect, net_rule(label, item));
            add(allowed.listen, net_rule(label, item));
        });
        items("allow-connect",
              [&](const std::string& label, std::string& item) { add(allowed.connect, net_rule(label, item)); });
        items("allow-listen", [&](const std::string& label, std::string& item) {
            if (item.starts_with(tinykvm::kUnixRule))
                item = unix_rule(item);
            add(allowed.listen, item == "*" ? tinykvm::NetRule() : tinykvm::parse_listen_rule(label, item));
        });
        split_volumes();
        items("volume", [&](const std::string&, std::string& item) { add(allowed.volumes, volume(item)); });
    }

    // "/a:/b,/c:/d:rw" is two. "/a,b:/c" is one, whose path has a comma.
    void split_volumes() {
        Setting* const setting = find("volume");
        std::vector<std::string> all;
        for (const std::string& value : setting ? setting->values : std::vector<std::string>()) {
            const std::vector<std::string> parts = split_commas(value);
            if (std::ranges::all_of(parts, [](const std::string& part) { return part.find(':') != part.npos; }))
                all.insert(all.end(), parts.begin(), parts.end());
            else
                all.push_back(value);
        }
        if (setting)
            setting->values = std::move(all);
    }

    // "unix:PATH" with an absolute path; "unix:@NAME" as it is.
    std::string unix_rule(const std::string& item) const {
        const std::string name = item.substr(std::string(tinykvm::kUnixRule).size());
        return name.empty() || name.front() == '@' ? item : tinykvm::kUnixRule + absolute_path(folder_, name);
    }

    std::string path(std::string& item) const { return item = absolute_path(folder_, item); }

    static void check_env_name(const std::string& label, const std::string& item) {
        if (item.find('=') != item.npos)
            usage_error(fmt::format("{}: '{}' is not a name; to set a variable: --env {}", label, item, item));
        if (item.find('*') < item.size() - 1)
            usage_error(fmt::format("{}: '*' may only end the name in '{}'", label, item));
    }

    static tinykvm::NetRule net_rule(const std::string& label, const std::string& item) {
        return item == "*" ? tinykvm::NetRule() : tinykvm::parse_net_rule(label, item);
    }

    tinykvm::Volume volume(std::string& item) {
        const Setting& setting = *find("volume");
        try {
            tinykvm::Volume result = tinykvm::parse_volume(item);
            result.host = absolute_path(folder_, result.host);
            result.guest = absolute_path("/", result.guest);
            item = fmt::format("{}:{}:{}{}{}", result.host, result.guest, result.read ? "r" : "",
                               result.write ? "w" : "", result.execute ? "x" : "");
            return result;
        } catch (const tinykvm::UserError& error) {
            throw tinykvm::UserError(error.code(), setting.where + error.what());
        }
    }

    // Options without effect are still checked: what is accepted is also well-formed.
    void check_unused() {
        for (const OptionSpec& spec : machine_options()) {
            if (spec.group != kCompatibility)
                continue;
            bool ignored = false;
            if (spec.kind == Kind::flag)
                flag(spec.name, ignored);
            else if (spec.kind == Kind::mib)
                whole(spec.name, 0, kMaxMib, 0, "of MiB ");
            else
                items(spec.name, [](const std::string&, const std::string&) {});
        }
    }

    Settings& settings_;
    std::string folder_;
    unsigned cpus_;
    Options options_;
};

} // namespace

int descriptor_of(const Setting& setting, std::string_view name) {
    return static_cast<int>(whole_of(setting, name, 0, std::numeric_limits<int>::max()));
}

Options options_from(Settings& settings, const std::string& folder, unsigned cpus) {
    return Converter(settings, folder, cpus).convert();
}

} // namespace kvmserver::cli
