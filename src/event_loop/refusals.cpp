#include "src/event_loop/refusals.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvmserver {
namespace {

constexpr std::size_t kMaxValues = 500; // kept per flag: a program may go on asking for ever
constexpr std::size_t kMaxShown = 30;
// This many files of one folder are shown as the folder.
constexpr std::size_t kManyOfFolder = 4;

std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Only nested folders stand for their files: never suggest to allow all of /etc or /home.
bool may_stand_for_all(const std::string& folder) { return std::count(folder.begin(), folder.end(), '/') >= 2; }

bool beneath_one_of(const std::vector<std::string>& folders, const std::string& path) {
    return std::any_of(folders.begin(), folders.end(),
                       [&](const std::string& folder) { return path == folder || path.starts_with(folder + "/"); });
}

std::vector<std::string> by_folder(const std::vector<std::string>& paths) {
    std::map<std::string, std::size_t> folders;
    for (const std::string& path : paths)
        ++folders[parent(path)];
    const auto many = [&](const std::string& folder) {
        const auto at = folders.find(folder);
        return at != folders.end() && at->second >= kManyOfFolder && may_stand_for_all(folder);
    };
    std::vector<std::string> out;
    const auto shown_as = [&](const std::string& path) { // itself or a folder
        for (std::string folder = parent(path); !folder.empty(); folder = parent(folder))
            if (many(folder))
                return folder;
        return path;
    };
    // Paths are sorted, so a folder precedes its files.
    for (const std::string& path : paths)
        if (const std::string shown = shown_as(path); !beneath_one_of(out, shown))
            out.push_back(shown);
    return out;
}

std::string for_shell(const std::string& text) {
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:=,@%+[]";
    if (text.find_first_not_of(kPlain) == text.npos && text.find('[') == text.npos)
        return text;
    std::string quoted = "'";
    for (const char c : text)
        quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

std::string for_toml(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            quoted += '\\';
        quoted += c;
    }
    return quoted + "\"";
}

} // namespace

void Refusals::add(std::string_view line) {
    constexpr std::string_view kEnd = " would allow it";
    if (!line.starts_with("--") || !line.ends_with(kEnd))
        return;
    line = line.substr(2, line.size() - 2 - kEnd.size());
    const std::size_t equals = line.find('=');
    if (equals == line.npos)
        return;
    auto& values = flags_[std::string(line.substr(0, equals))];
    if (values.size() < kMaxValues)
        values.emplace(line.substr(equals + 1));
}

std::vector<std::string> Refusals::values_of(const std::string& flag) const {
    std::vector<std::string> values;
    const auto write = flags_.find("allow-write");
    for (const std::string& value : flags_.at(flag)) {
        if (flag == "allow-read" &&
            ((exists_ && !exists_(value)) || (write != flags_.end() && write->second.contains(value))))
            continue;
        values.push_back(value);
    }
    return flag == "allow-read" ? by_folder(values) : values;
}

std::vector<std::string> Refusals::advice() const {
    if (hopeless_)
        return {};
    std::vector<std::string> options, lines;
    for (const auto& [flag, unused] : flags_) {
        std::vector<std::string> values = values_of(flag);
        if (values.empty())
            continue;
        const std::size_t more = values.size() > kMaxShown ? values.size() - kMaxShown : 0;
        values.resize(values.size() - more);
        std::vector<std::string> quoted;
        quoted.reserve(values.size());
        for (const std::string& value : values)
            quoted.push_back(for_toml(value));
        if (flag == "volume")
            for (const std::string& value : values)
                options.push_back(for_shell("--volume=" + value));
        else
            options.push_back(for_shell(fmt::format("--{}={}", flag, fmt::join(values, ","))));
        lines.push_back(fmt::format("{} = [{}]{}", flag, fmt::join(quoted, ", "),
                                    more ? fmt::format("  # and {} more", more) : ""));
    }
    if (options.empty())
        return {};
    lines.insert(lines.begin(),
                 {fmt::format("it lacked permissions; this would allow what was refused: {}", fmt::join(options, " ")),
                  "or as lines at the top of kvmserver.toml:"});
    return lines;
}

} // namespace kvmserver
