#include "src/cli/init/guess.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <span>
#include <utility>

#include "src/cli/init/guess_files.hpp"
#include "src/cli/init/guess_languages.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::init {
namespace {

namespace fs = std::filesystem;

// The binary that `cargo build` makes.
Guess rust(const fs::path& folder) {
    constexpr const char* file = "Cargo.toml";
    try {
        const toml::table top = toml::parse_file((folder / file).string());
        if (const auto bin = top["bin"][0]["name"].value<std::string>())
            return {"rust", file, {.entry = *bin}};
        if (const auto package = top["package"]["name"].value<std::string>())
            return {"rust", file, {.entry = *package}};
    } catch (const toml::parse_error& error) {
        no_entry(file, std::string("it is no TOML: ") + std::string(error.description()));
    }
    no_entry(file, "it has no [package]: a workspace? go into one of its members");
}

[[noreturn]] void no_dotnet(const std::string& file) {
    throw tinykvm::UserError(tinykvm::ExitCode::not_found, fmt::format("there is a {}: {}", file, kNoDotnet));
}

std::span<const std::pair<const char*, Names>> usual_programs() {
    static const std::pair<const char*, Names> all[] = {
        {"python", {"server.py", "app.py", "main.py"}},
        {"node", {"server.js", "server.mjs", "index.js", "app.js"}},
        {"deno", {"server.ts", "main.ts"}},
        {"c", {"server.c", "main.c"}},
    };
    return all;
}

} // namespace

std::optional<Guess> guess_template(const fs::path& folder) {
    if (!first_of(folder, {"Cargo.toml"}).empty())
        return rust(folder);
    if (!first_of(folder, {"go.mod"}).empty())
        return Guess{"go", "go.mod", {}};
    for (const char* ending : {".csproj", ".fsproj", ".sln"})
        if (const std::string file = with_ending(folder, ending); !file.empty())
            no_dotnet(file);
    const Names deno_entries{"server.ts", "main.ts", "mod.ts", "server.js", "main.js"};
    if (const std::string file = first_of(folder, {"deno.json", "deno.jsonc"}); !file.empty())
        return with_entry(folder, "deno", file, deno_entries);
    for (const auto guess :
         {guess_java, guess_php, guess_ruby, guess_python_framework, guess_javascript, guess_python_project})
        if (auto found = guess(folder))
            return found;
    // Without a project file, recognize the program itself.
    for (const auto& [name, entries] : usual_programs())
        if (const std::string entry = first_of(folder, entries); !entry.empty())
            return Guess{name, entry, {.entry = entry}};
    return std::nullopt;
}

std::string usual_names() {
    Names names;
    for (const auto& [name, entries] : usual_programs())
        names.insert(names.end(), entries.begin(), entries.end());
    return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace kvmserver::cli::init
