#include "src/embed/settings.hpp"

#include <array>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::embed {

using namespace tinykvm;

namespace {

[[noreturn]] void bad(std::string_view option, const std::string& why) {
    throw UserError(ExitCode::usage, fmt::format("{}: {}", option, why));
}

double number(const std::string& option, const std::string& value, double lowest, double highest) {
    double out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || end != value.data() + value.size() || !(out >= lowest && out <= highest))
        bad(option, fmt::format("'{}' is not a number from {:g} to {:g}", brief(value), lowest, highest));
    return out;
}

double seconds(const std::string& option, const std::string& value, bool may_be_none) {
    constexpr double kMost = 1e6;
    return number(option, value, may_be_none ? 0 : 1e-3, kMost);
}

std::uint64_t mebibytes(const std::string& option, const std::string& value) {
    constexpr double kMost = 1 << 27; // 128 TiB, all of an address space
    return static_cast<std::uint64_t>(number(option, value, 1, kMost) * (1 << 20));
}

bool truth(const std::string& option, const std::string& value) {
    if (value != "true" && value != "false")
        bad(option, fmt::format("'{}' is neither true nor false", brief(value)));
    return value == "true";
}

std::string path(const std::string& option, const std::string& value) {
    if (value.empty())
        bad(option, "a path is empty");
    std::string out = std::filesystem::absolute(value).lexically_normal().string();
    while (out.size() > 1 && out.back() == '/')
        out.pop_back();
    return out;
}

struct Row {
    std::string_view name;
    bool permission;
    void (*set)(Settings&, const std::string& option, const std::string& value);
};

constexpr std::array kRows{
    Row{"allow-all", true, [](Settings& s, auto& o, auto& v) { s.permissions.all = truth(o, v); }},
    Row{"allow-connect", true,
        [](Settings& s, auto& o, auto& v) { s.permissions.connect.push_back(parse_net_rule(o, v)); }},
    Row{"allow-read", true, [](Settings& s, auto& o, auto& v) { s.permissions.read.push_back(path(o, v)); }},
    Row{"allow-write", true, [](Settings& s, auto& o, auto& v) { s.permissions.write.push_back(path(o, v)); }},
    Row{"code-as-is", false, [](Settings& s, auto& o, auto& v) { s.code_as_is = truth(o, v); }},
    Row{"cpu", false,
        [](Settings& s, auto& o, auto& v) {
            if (v != "x86-64-v2" && v != "x86-64-v3" && v != "x86-64-v4")
                bad(o, fmt::format("'{}' is none of x86-64-v2, x86-64-v3, x86-64-v4", brief(v)));
            s.cpu = v;
        }},
    Row{"cwd", false, [](Settings& s, auto& o, auto& v) { s.cwd = path(o, v); }},
    Row{"env", false,
        [](Settings& s, auto& o, auto& v) {
            if (v.find('=') == v.npos || v.front() == '=')
                bad(o, fmt::format("'{}' is not NAME=VALUE", brief(v)));
            s.env.push_back(v);
        }},
    Row{"max-address-space", false, [](Settings& s, auto& o, auto& v) { s.limits.address_space = mebibytes(o, v); }},
    Row{"max-boot-time", false, [](Settings& s, auto& o, auto& v) { s.limits.boot_seconds = seconds(o, v, false); }},
    Row{"max-keep-memory", false, [](Settings& s, auto& o, auto& v) { s.limits.keep_memory = mebibytes(o, v); }},
    Row{"max-main-memory", false, [](Settings& s, auto& o, auto& v) { s.limits.memory = mebibytes(o, v); }},
    Row{"max-open-files", false,
        [](Settings& s, auto& o, auto& v) {
            constexpr double kLeast = 16, kMost = 1 << 20;
            s.limits.open_files = static_cast<std::uint32_t>(number(o, v, kLeast, kMost));
        }},
    Row{"max-request-cpu", false,
        [](Settings& s, auto& o, auto& v) { s.limits.request_cpu_seconds = seconds(o, v, true); }},
    Row{"max-request-memory", false, [](Settings& s, auto& o, auto& v) { s.limits.request_memory = mebibytes(o, v); }},
    Row{"max-request-time", false,
        [](Settings& s, auto& o, auto& v) { s.limits.request_seconds = seconds(o, v, false); }},
    Row{"no-executable-heap", false, [](Settings& s, auto& o, auto& v) { s.limits.executable_heap = !truth(o, v); }},
    Row{"ready-at", false,
        [](Settings& s, auto& o, auto& v) {
            if (v.empty())
                bad(o, "name a function of the program");
            s.ready_at = v;
        }},
    Row{"verbose", false, [](Settings& s, auto& o, auto& v) { s.verbose = truth(o, v); }},
    Row{"volume", true,
        [](Settings& s, auto& o, auto& v) {
            Volume volume = parse_volume(v);
            volume.host = path(o, volume.host);
            s.permissions.volumes.push_back(std::move(volume));
        }},
};

} // namespace

void Settings::set(const std::string& option, const std::string& value) {
    for (const Row& row : kRows)
        if (row.name == option) {
            row.set(*this, option, value);
            given.insert(option);
            return;
        }
    throw UserError(
        ExitCode::usage,
        fmt::format("there is no option '{}'; tinykvm.h lists those of tinykvm_program_set()", brief(option)));
}

bool Settings::gives_permissions() const {
    for (const Row& row : kRows)
        if (row.permission && given.contains(row.name))
            return true;
    return false;
}

} // namespace kvmserver::embed
