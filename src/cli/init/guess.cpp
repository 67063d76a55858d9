#include "src/cli/init/guess.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include <fstream>
#include <vector>

#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::init {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::string first_of(const fs::path& folder, const Names& names) {
    std::error_code error;
    for (const std::string& name : names)
        if (fs::is_regular_file(folder / name, error))
            return name;
    return {};
}

[[noreturn]] void no_entry(const std::string& because, const std::string& what) {
    throw tinykvm::UserError(
        tinykvm::ExitCode::not_found,
        fmt::format("there is a {}, but {}; write a kvmserver.toml by hand, or begin in an empty folder", because,
                    what));
}

Guess with_entry(const fs::path& folder, const char* name, const std::string& because, const Names& entries) {
    const std::string entry = first_of(folder, entries);
    if (entry.empty())
        no_entry(because, fmt::format("none of {}", fmt::join(entries, ", ")));
    return {name, because, entry};
}

// The binary that `cargo build` makes.
Guess rust(const fs::path& folder) {
    constexpr const char* file = "Cargo.toml";
    try {
        const toml::table top = toml::parse_file((folder / file).string());
        if (const auto bin = top["bin"][0]["name"].value<std::string>())
            return {"rust", file, *bin};
        if (const auto package = top["package"]["name"].value<std::string>())
            return {"rust", file, *package};
    } catch (const toml::parse_error& error) {
        no_entry(file, std::string("it is no TOML: ") + std::string(error.description()));
    }
    no_entry(file, "it has no [package]: a workspace? go into one of its members");
}

Guess node(const fs::path& folder) {
    constexpr const char* file = "package.json";
    Names entries{"server.js", "server.mjs", "index.js", "index.mjs", "app.js", "main.js"};
    std::ifstream stream(folder / file);
    const auto package = nlohmann::json::parse(stream, nullptr, false);
    if (package.is_object() && package.contains("main") && package["main"].is_string())
        entries.insert(entries.begin(), package["main"].get<std::string>());
    return with_entry(folder, "node", file, entries);
}

} // namespace

std::optional<Guess> guess_template(const fs::path& folder) {
    if (!first_of(folder, {"Cargo.toml"}).empty())
        return rust(folder);
    if (!first_of(folder, {"go.mod"}).empty())
        return Guess{"go", "go.mod", "server"};
    const Names deno_entries{"server.ts", "main.ts", "mod.ts", "server.js", "main.js"};
    if (const std::string file = first_of(folder, {"deno.json", "deno.jsonc"}); !file.empty())
        return with_entry(folder, "deno", file, deno_entries);
    if (!first_of(folder, {"package.json"}).empty())
        return node(folder);
    // Without a project file, recognize the program itself.
    const std::pair<const char*, Names> programs[] = {
        {"python", {"server.py", "app.py", "main.py"}},
        {"node", {"server.js", "server.mjs", "index.js", "app.js"}},
        {"deno", {"server.ts", "main.ts"}},
        {"c", {"server.c", "main.c"}},
    };
    for (const auto& [name, entries] : programs)
        if (const std::string entry = first_of(folder, entries); !entry.empty())
            return Guess{name, entry, entry};
    return std::nullopt;
}

} // namespace kvmserver::cli::init
