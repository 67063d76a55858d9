// Python projects: what they depend on, and where their application is.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "src/cli/init/guess_files.hpp"
#include "src/cli/init/guess_languages.hpp"

namespace kvmserver::cli::init {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRequirements = "requirements.txt";
constexpr const char* kProject = "pyproject.toml";

// The name of a requirement such as "Flask[async] >= 3", as package indexes compare names.
std::string package_of(const std::string& requirement) {
    std::string name;
    for (const char c : requirement) {
        const auto byte = static_cast<unsigned char>(c);
        if (name.empty() && std::isspace(byte))
            continue;
        if (!std::isalnum(byte) && c != '-' && c != '_' && c != '.')
            break;
        name += c == '_' || c == '.' ? '-' : static_cast<char>(std::tolower(byte));
    }
    return name;
}

Names required_by_project(const fs::path& file) {
    Names names;
    try {
        const toml::table top = toml::parse_file(file.string());
        if (const toml::array* list = top["project"]["dependencies"].as_array())
            for (const toml::node& each : *list)
                names.push_back(package_of(each.value_or(std::string())));
        if (const toml::table* table = top["tool"]["poetry"]["dependencies"].as_table())
            for (const auto& [key, value] : *table)
                names.push_back(package_of(std::string(key.str())));
    } catch (const toml::parse_error& error) {
        no_entry(kProject, std::string("it is no TOML: ") + std::string(error.description()));
    }
    return names;
}

struct Project {
    std::string file; // that names what it requires
    Names packages;

    bool names(const std::string& package) const { return std::ranges::find(packages, package) != packages.end(); }
    std::string because(const std::string& package) const { return fmt::format("{} names {}", file, package); }
    // Installs what it requires, and a server.
    std::string build(const std::string& server) const {
        const std::string add = names(server) ? "" : ' ' + server;
        return fmt::format("python3 -m venv .venv && .venv/bin/pip install -q {}{}",
                           file == kProject ? "." : "-r requirements.txt", add);
    }
};

std::optional<Project> project_in(const fs::path& folder) {
    if (has_file(folder, kRequirements)) {
        Project project{kRequirements, {}};
        std::istringstream lines(text_of(folder / kRequirements));
        for (std::string line; std::getline(lines, line);)
            project.packages.push_back(package_of(line));
        return project;
    }
    if (has_file(folder, kProject))
        return Project{kProject, required_by_project(folder / kProject)};
    return std::nullopt;
}

// Files that may hold the application, the likeliest first.
Names application_files(const fs::path& folder) {
    Names files{"app.py", "main.py", "wsgi.py", "asgi.py", "server.py", "application.py", "api.py"};
    for (const std::string& package : source_folders(folder))
        for (const char* file : {"main.py", "app.py", "__init__.py"})
            files.push_back(fmt::format("{}/{}", package, file));
    std::erase_if(files, [&](const std::string& file) { return !has_file(folder, file); });
    return files;
}

// "package/app.py" is package.app.
std::string module_of(std::string file) {
    for (const std::string_view ending : {".py", "/__init__"})
        if (file.ends_with(ending))
            file.resize(file.size() - ending.size());
    std::ranges::replace(file, '/', '.');
    return file;
}

// The variable that is a `type`, or the function that makes one, as options and "module:name".
Values application(const fs::path& folder, const std::string& because, const std::string& type,
                   const std::string& factory_option) {
    const std::string made = fmt::format(R"(^(\w+)\s*(:[^=]+)?=\s*(\w+\.)?{}\()", type);
    const std::string factory = fmt::format(R"(^def\s+(create_app|make_app|get_app)\s*\(\s*\))");
    const Names files = application_files(folder);
    for (const bool direct : {true, false})
        for (const std::string& file : files)
            if (const std::string name = found_in(text_of(folder / file), (direct ? made : factory).c_str());
                !name.empty())
                return {.entry = fmt::format("{}:{}", module_of(file), name),
                        .options = direct ? "" : fmt::format("\"{}\", ", factory_option)};
    no_entry(because, fmt::format("no file has a line such as app = {}(...)", type));
}

Guess flask(const fs::path& folder, const Project& project) {
    Guess guess{"flask", project.because("flask"), application(folder, project.file, "Flask", "--call")};
    guess.values.build = project.build("waitress");
    return guess;
}

} // namespace

std::optional<Guess> guess_python(const fs::path& folder) {
    const auto project = project_in(folder);
    if (project && project->names("flask"))
        return flask(folder, *project);
    return std::nullopt;
}

} // namespace kvmserver::cli::init
