#include "tinykvm/linux/permissions.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"

namespace tinykvm {

namespace {

[[noreturn]] void bad_rule(const std::string& flag, const std::string& text, const std::string& why) {
    throw UserError(ExitCode::usage, fmt::format("{}={}: {}", flag, text, why));
}

bool all_digits(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<std::uint16_t> parse_port(const std::string& text) {
    if (!all_digits(text) || text.size() > 5)
        return std::nullopt;
    const int port = std::stoi(text);
    return port <= 65535 ? std::optional<std::uint16_t>(port) : std::nullopt;
}

bool is_ipv4(const std::string& text) {
    in_addr address{};
    return inet_pton(AF_INET, text.c_str(), &address) == 1;
}

bool is_ipv6(const std::string& text) {
    in6_addr address{};
    return inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// Letters, digits, '-', '_' and '.', with at least one letter: "8080" and "1.2.3", which inet_aton accepts, are no
// names.
bool is_name(const std::string& text) {
    bool letter = false;
    for (const char c : text) {
        const bool alpha = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alpha && !(c >= '0' && c <= '9') && c != '-' && c != '_' && c != '.')
            return false;
        letter |= alpha;
    }
    return letter;
}

} // namespace

NetRule parse_net_rule(const std::string& flag, const std::string& text) {
    if (text.empty())
        bad_rule(flag, text, "empty; write HOST:PORT, :PORT or HOST");
    if (text.find("://") != std::string::npos)
        bad_rule(flag, text, "a URL is not an address; write HOST:PORT");
    if (text.starts_with(kUnixRule))
        bad_rule(flag, text, "Unix sockets are for --allow-listen; connecting to one takes --allow-write=PATH");
    if (all_digits(text))
        bad_rule(flag, text, fmt::format("a port needs a colon; did you mean :{}?", text));
    if (is_ipv6(text))
        return {text, 0};

    NetRule rule;
    std::string port;
    bool has_port = false;
    if (text.front() == '[') {
        const std::size_t close = text.find(']');
        if (close == std::string::npos)
            bad_rule(flag, text, "no ']' after the IPv6 address");
        rule.host = text.substr(1, close - 1);
        if (!is_ipv6(rule.host))
            bad_rule(flag, text, fmt::format("\"{}\" is not an IPv6 address", rule.host));
        const std::string rest = text.substr(close + 1);
        has_port = !rest.empty();
        if (has_port && rest.front() != ':')
            bad_rule(flag, text, "after ']' only :PORT may follow");
        port = has_port ? rest.substr(1) : "";
    } else {
        const std::size_t colon = text.find(':');
        has_port = colon != std::string::npos;
        if (has_port && text.find(':', colon + 1) != std::string::npos)
            bad_rule(flag, text, "an IPv6 address with a port needs brackets: [::1]:80");
        rule.host = text.substr(0, colon);
        port = has_port ? text.substr(colon + 1) : "";
        if (rule.host == "*")
            bad_rule(flag, text,
                     has_port ? fmt::format("any address is the empty host; did you mean :{}?", port)
                              : fmt::format("any address is the bare flag {}", flag));
        if (!rule.host.empty() && !is_ipv4(rule.host) && !is_name(rule.host))
            bad_rule(flag, text, fmt::format("\"{}\" is neither an address nor a name", rule.host));
    }
    if (has_port) {
        const auto number = parse_port(port);
        if (!number)
            bad_rule(flag, text, fmt::format("\"{}\" is not a port (0 to 65535)", port));
        rule.port = *number;
    }
    return rule;
}

NetRule parse_listen_rule(const std::string& flag, const std::string& text) {
    if (!text.starts_with(kUnixRule))
        return parse_net_rule(flag, text);
    const std::string name = text.substr(std::string(kUnixRule).size());
    if (name.size() < 2 || (name.front() != '/' && name.front() != '@'))
        bad_rule(flag, text, "write unix:/PATH, or unix:@NAME for an abstract name");
    return {text, 0};
}

Volume parse_volume(const std::string& text) {
    const std::string flag = "--volume";
    std::vector<std::string> parts;
    std::size_t from = 0;
    while (true) {
        const std::size_t colon = text.find(':', from);
        parts.push_back(text.substr(from, colon - from));
        if (colon == std::string::npos)
            break;
        from = colon + 1;
    }
    if (parts.size() < 2 || parts.size() > 3)
        bad_rule(flag, text, "write HOST:GUEST or HOST:GUEST:rwx");
    Volume volume;
    if (parts[0].empty())
        bad_rule(flag, text, "the host folder is empty");
    volume.host = std::filesystem::absolute(parts[0]).lexically_normal().string();
    const PathText guest = cut_path(parts[1]);
    if (!guest.absolute)
        bad_rule(flag, text, fmt::format("the guest path \"{}\" must start with '/'", parts[1]));
    if (guest.dots)
        bad_rule(flag, text, "the guest path must not hold \"..\"");
    volume.guest = join_parts(guest.parts);
    if (is_beneath(volume.guest, "/proc"))
        bad_rule(flag, text, "/proc belongs to the machine");
    if (parts.size() == 3) {
        if (parts[2].empty())
            bad_rule(flag, text, "no letters after the last colon; write r, rw, rx or rwx");
        volume.read = false;
        for (const char letter : parts[2]) {
            bool* which = letter == 'r'   ? &volume.read
                          : letter == 'w' ? &volume.write
                          : letter == 'x' ? &volume.execute
                                          : nullptr;
            if (!which || *which)
                bad_rule(flag, text, fmt::format("\"{}\" is not made of r, w and x", parts[2]));
            *which = true;
        }
        volume.read |= volume.write; // writing implies reading
    }
    return volume;
}

bool env_allowed(const Permissions& permissions, const std::string& name) {
    if (permissions.all)
        return true;
    return std::any_of(permissions.env.begin(), permissions.env.end(), [&](const std::string& rule) {
        if (rule.ends_with('*'))
            return name.starts_with(std::string_view(rule).substr(0, rule.size() - 1));
        return name == rule;
    });
}

} // namespace tinykvm
