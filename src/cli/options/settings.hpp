// What the user set, still as text: the same form for the command line and for the options file.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::cli {

struct Setting {
    // One value, for lists any number; a flag is "true" or "false" (or what else was written, refused later).
    std::vector<std::string> values;
    std::string where = ""; // "kvmserver.toml:3: ", empty for the command line

    bool from_file() const { return !where.empty(); }
    // For messages: "--threads" or "kvmserver.toml:3: threads".
    std::string label(std::string_view name) const;
};

// By long name.
using Settings = std::map<std::string, Setting, std::less<>>;

// The command line wins, option by option. Of --allow-all and the narrower permissions, which exclude each
// other, those of the file give way when the command line has one of the other kind.
Settings merge(Settings file, const Settings& line);

// "a,b" to "a" and "b"; empty items are kept.
std::vector<std::string> split_commas(const std::string& text);

// The options that --allow-all excludes.
std::span<const std::string_view> narrow_permissions();
bool is_set(const Settings& settings, std::string_view flag); // to "true"

} // namespace kvmserver::cli
