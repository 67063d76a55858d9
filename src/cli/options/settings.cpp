#include "src/cli/options/settings.hpp"

#include <algorithm>

namespace kvmserver::cli {

std::string Setting::label(std::string_view name) const {
    return (from_file() ? where : std::string("--")) + std::string(name);
}

std::span<const std::string_view> narrow_permissions() {
    static constexpr std::string_view names[] = {"allow-read",    "allow-write",  "allow-env", "allow-net",
                                                 "allow-connect", "allow-listen", "volume"};
    return names;
}

bool is_set(const Settings& settings, std::string_view flag) {
    const auto at = settings.find(flag);
    return at != settings.end() && at->second.values == std::vector<std::string>{"true"};
}

std::vector<std::string> split_commas(const std::string& text) {
    std::vector<std::string> items;
    for (std::size_t from = 0;;) {
        const std::size_t comma = text.find(',', from);
        items.push_back(text.substr(from, comma - from));
        if (comma == std::string::npos)
            return items;
        from = comma + 1;
    }
}

Settings merge(Settings file, const Settings& line) {
    const auto on_line = [&](std::string_view name) { return line.contains(name); };
    if (is_set(line, "allow-all"))
        for (const std::string_view name : narrow_permissions())
            if (const auto at = file.find(name); at != file.end())
                file.erase(at);
    if (std::ranges::any_of(narrow_permissions(), on_line))
        file.erase("allow-all");
    Settings merged = line;
    merged.merge(file); // keeps what is there
    return merged;
}

} // namespace kvmserver::cli
