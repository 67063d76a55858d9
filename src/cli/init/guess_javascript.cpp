// Projects with a package.json: Next.js, Bun, Express, or a program of Node.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/cli/init/guess_files.hpp"
#include "src/cli/init/guess_languages.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::init {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "package.json";

class Package {
public:
    explicit Package(const fs::path& folder)
        : folder_(folder), json_(nlohmann::json::parse(text_of(folder / kFile), nullptr, false)) {}

    bool depends_on(const char* name) const { return section("dependencies").contains(name); }

    std::string text(const char* key) const { return text_in(json_, key); }
    std::string script(const char* name) const { return text_in(section("scripts"), name); }

    // The file that the start script names behind the runtime's name, else that of "main".
    Names entries(const char* start_expression) const {
        Names names;
        for (const std::string& each : {found_in(script("start"), start_expression), text("main")})
            if (!each.empty() && !each.starts_with('-'))
                names.push_back(fs::path(each).lexically_normal().string());
        return names;
    }

    // The commands that install what it depends on, and build it; "" if there is nothing to do.
    std::string build() const {
        const bool builds = !script("build").empty();
        if (!builds && section("dependencies").empty())
            return {};
        return builds ? fmt::format("{} && {} run build", install(true), manager()) : install(false);
    }

    std::string manager() const {
        if (!first_of(folder_, {"bun.lock", "bun.lockb"}).empty())
            return "bun";
        return has_file(folder_, "pnpm-lock.yaml") ? "pnpm" : has_file(folder_, "yarn.lock") ? "yarn" : "npm";
    }

private:
    nlohmann::json section(const char* name) const {
        if (json_.is_object() && json_.contains(name) && json_[name].is_object())
            return json_[name];
        return nlohmann::json::object();
    }

    static std::string text_in(const nlohmann::json& object, const char* key) {
        return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                                                     : std::string();
    }

    std::string install(bool what_builds_too) const {
        const std::string name = manager();
        if (name != "npm")
            return name + " install --frozen-lockfile";
        return fmt::format("npm {}{}", has_file(folder_, "package-lock.json") ? "ci" : "install",
                           what_builds_too ? "" : " --omit=dev");
    }

    fs::path folder_;
    nlohmann::json json_;
};

// A file that the build makes need not be there yet.
Guess started(const fs::path& folder, const Package& package, const std::string& name, const std::string& because,
              Names entries, const Names& usual) {
    const std::string build = package.build();
    Guess guess{name, because, {}};
    if (!entries.empty() && !package.script("build").empty() && first_of(folder, entries).empty()) {
        guess.values.entry = entries.front();
    } else {
        entries.insert(entries.end(), usual.begin(), usual.end());
        guess = with_entry(folder, name, because, entries);
    }
    guess.values.build = build;
    return guess;
}

Guess next(const fs::path& folder, const Package& package, const std::string& because) {
    const std::string config =
        first_of(folder, {"next.config.js", "next.config.mjs", "next.config.cjs", "next.config.ts", "next.config.mts"});
    if (config.empty() || found_in(text_of(folder / config), R"((\bstandalone\b))").empty())
        throw tinykvm::UserError(
            tinykvm::ExitCode::not_found,
            fmt::format("{}, but {} has no output: \"standalone\", which makes a server in one process; add it, and "
                        "try again",
                        because, config.empty() ? "no next.config.mjs" : config));
    std::string build = package.build();
    if (package.script("build").empty())
        build += " && npx next build";
    build += " && cp -r .next/static .next/standalone/.next/";
    std::error_code error;
    if (fs::is_directory(folder / "public", error))
        build += " && cp -r public .next/standalone/";
    return {"next", because, {.entry = "", .build = build}};
}

} // namespace

std::optional<Guess> guess_javascript(const fs::path& folder) {
    const Package package(folder);
    if (package.depends_on("next"))
        return next(folder, package, "package.json names next");
    const bool has_package = has_file(folder, kFile);
    if (const std::string file = first_of(folder, {"bun.lock", "bun.lockb", "bunfig.toml"}); !file.empty()) {
        const Names usual{"server.ts", "index.ts", "main.ts", "src/index.ts", "server.js", "index.js"};
        return started(folder, package, "bun", file, package.entries(R"(\bbun\s+(?:run\s+)?(\S+))"), usual);
    }
    if (!has_package)
        return std::nullopt;
    const bool express = package.depends_on("express");
    return started(folder, package, express ? "express" : "node", express ? "package.json names express" : kFile,
                   package.entries(R"(\bnode\s+(\S+))"),
                   {"server.js", "server.mjs", "index.js", "index.mjs", "app.js", "main.js"});
}

Guess javascript_program(const fs::path& folder, const std::string& file, const std::string& name) {
    if (!has_file(folder, kFile))
        return {name, file, {.entry = file}};
    return {name, fmt::format("{} beside {}", file, kFile), {.entry = file, .build = Package(folder).build()}};
}

} // namespace kvmserver::cli::init
