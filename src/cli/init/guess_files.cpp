#include "src/cli/init/guess_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <regex>

#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::init {

namespace fs = std::filesystem;

std::string first_of(const fs::path& folder, const Names& names) {
    const auto found = std::ranges::find_if(names, [&](const std::string& name) { return has_file(folder, name); });
    return found == names.end() ? "" : *found;
}

bool has_file(const fs::path& folder, const std::string& name) {
    std::error_code error;
    return fs::is_regular_file(folder / name, error);
}

std::string with_ending(const fs::path& folder, const std::string& ending) {
    std::string first;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
        if (const std::string name = entry.path().filename().string();
            name.ends_with(ending) && entry.is_regular_file(error) && (first.empty() || name < first))
            first = name;
    return first;
}

Names source_folders(const fs::path& folder) {
    constexpr std::array<std::string_view, 8> kOthers{"build", "dist",  "env",  "node_modules",
                                                      "test",  "tests", "venv", "vendor"};
    Names names;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
        if (const std::string name = entry.path().filename().string();
            !name.starts_with('.') && std::ranges::find(kOthers, name) == kOthers.end() && entry.is_directory(error))
            names.push_back(name);
    std::ranges::sort(names);
    return names;
}

std::string text_of(const fs::path& file) {
    constexpr std::size_t kMost = 1 << 20;
    std::ifstream stream(file, std::ios::binary);
    std::string text(kMost, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(kMost));
    text.resize(static_cast<std::size_t>(stream.gcount()));
    return text;
}

std::string found_in(const std::string& text, const char* expression) {
    // Line by line: the library's matcher recurses for each character that it takes.
    const std::regex wanted(expression);
    constexpr std::size_t kLongest = 1000;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, std::min(end - at, kLongest));
        if (std::smatch match; std::regex_search(line, match, wanted))
            return match[1].str();
        at = end + 1;
    }
    return {};
}

void no_entry(const std::string& because, const std::string& what) {
    throw tinykvm::UserError(
        tinykvm::ExitCode::not_found,
        fmt::format("there is a {}, but {}; write a kvmserver.toml by hand, or begin in an empty folder", because,
                    what));
}

Guess with_entry(const fs::path& folder, const std::string& name, const std::string& because, const Names& entries) {
    const std::string entry = first_of(folder, entries);
    if (entry.empty())
        no_entry(because, fmt::format("none of {}", fmt::join(entries, ", ")));
    return {name, because, {.entry = entry}};
}

} // namespace kvmserver::cli::init
