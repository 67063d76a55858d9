// Programs that are one file: told by its ending, whatever its name.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/cli/init/guess_files.hpp"
#include "src/cli/init/guess_languages.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::init {
namespace {

namespace fs = std::filesystem;

struct Language {
    Names templates; // the first is that of a single file, unless `many`
    Names endings;
    bool many = false; // a program is more than one file, so a project file tells what starts it
};

const std::vector<Language>& languages() {
    static const std::vector<Language> all{
        {{"python"}, {".py"}},
        {{"node"}, {".js", ".mjs", ".cjs"}},
        {{"deno", "bun"}, {".ts"}},
        {{"c"}, {".c"}},
        {{"ruby"}, {".rb"}},
        {{"flask", "fastapi", "django"}, {".py"}, true},
        {{"express", "next"}, {".js", ".mjs", ".cjs", ".ts"}, true},
        {{"rack"}, {".rb"}, true},
        {{"php"}, {".php"}, true},
        {{"rust"}, {".rs"}, true},
        {{"go"}, {".go"}, true},
        {{"java", "java-gradle"}, {".java"}, true},
    };
    return all;
}

bool has(const Names& names, const std::string& name) { return std::ranges::find(names, name) != names.end(); }

bool is_program_file(const std::string& name) {
    const std::string stem = name.substr(0, name.rfind('.'));
    const bool test =
        stem.starts_with("test_") || stem.ends_with("_test") || stem.ends_with(".test") || stem.ends_with(".spec");
    const bool settings = stem.ends_with(".config") || stem.ends_with(".d") || stem == "setup" || stem == "conftest" ||
                          stem == "__init__";
    return !name.starts_with('.') && !test && !settings;
}

} // namespace

bool starts_one_file(const std::string& template_name) {
    return std::ranges::any_of(languages(),
                               [&](const Language& each) { return !each.many && has(each.templates, template_name); });
}

std::vector<std::string> program_files(const fs::path& folder, const std::string& template_name) {
    Names endings;
    for (const Language& each : languages())
        if (template_name.empty() ? !each.many : has(each.templates, template_name))
            endings.insert(endings.end(), each.endings.begin(), each.endings.end());
    Names files;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
        if (const std::string name = entry.path().filename().string();
            is_program_file(name) && has(endings, fs::path(name).extension().string()) && entry.is_regular_file(error))
            files.push_back(name);
    std::ranges::sort(files);
    // The likely ones first: what begins a program, or serves.
    // std::ranges' version does not compile with clang 14.
    std::stable_partition(files.begin(), files.end(), [&](const std::string& name) {
        return !found_in(text_of(folder / name), R"((__main__|serve_forever|[Ll]isten ?\(|\.serve\(|\bmain ?\())")
                    .empty();
    });
    return files;
}

Guess guess_program(const fs::path& folder, const std::string& file, const std::string& template_name) {
    std::string name = template_name;
    if (name.empty()) {
        const std::string ending = fs::path(file).extension().string();
        for (const Language& each : languages())
            if (!each.many && has(each.endings, ending))
                name = each.templates.front();
        if (name == "deno" && !first_of(folder, {"bun.lock", "bun.lockb", "bunfig.toml"}).empty())
            name = "bun";
    }
    if (!starts_one_file(name)) {
        Names known;
        for (const Language& each : languages())
            if (!each.many)
                known.insert(known.end(), each.templates.begin(), each.templates.end());
        throw tinykvm::UserError(
            tinykvm::ExitCode::usage,
            name.empty() ? fmt::format("{}: its ending tells no language that one file is a program of: add --template "
                                       "{}, or write [run] of a kvmserver.toml by hand",
                                       file, fmt::join(known, "|"))
                         : fmt::format("a program of {} is more than one file: leave out --program (it goes with {})",
                                       name, fmt::join(known, ", ")));
    }
    if (name == "python")
        return python_program(folder, file);
    if (name == "ruby")
        return ruby_program(folder, file);
    if (name == "node" || name == "bun")
        return javascript_program(folder, file, name);
    return {name, file, {.entry = file}};
}

} // namespace kvmserver::cli::init
