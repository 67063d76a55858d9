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
constexpr const char* kUv = "uv sync -q --no-dev"; // makes .venv

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
    std::string file;         // that names what it requires; "": none does
    Names packages;           // that it requires
    std::string installation; // command for them; a server's name may follow

    bool names(const std::string& package) const { return std::ranges::find(packages, package) != packages.end(); }
    std::string because(const std::string& package) const { return fmt::format("{} names {}", file, package); }
    // Installs what it requires, and a server if that is not among it.
    std::string build(const std::string& server) const {
        const bool more = !server.empty() && !names(server);
        if (installation == kUv)
            return more ? fmt::format("{} && uv pip install -q {}", installation, server) : installation;
        return "python3 -m venv .venv && " + installation + (more ? ' ' + server : "");
    }
};

// Pip installs a project's dependencies alone only from a list.
constexpr const char* kListed =
    R"(.venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"])"
    R"(["dependencies"], sep="\n")' >.venv/requirements.txt && .venv/bin/pip install -q -r .venv/requirements.txt)";

std::string installation(const fs::path& folder) {
    if (has_file(folder, "uv.lock"))
        return kUv;
    const std::string text = text_of(folder / kProject);
    const bool package = !found_in(text, R"(^\s*\[(build-system|tool\.poetry))").empty();
    return package ? ".venv/bin/pip install -q ." : kListed;
}

std::optional<Project> project_in(const fs::path& folder) {
    if (has_file(folder, kRequirements)) {
        Project project{kRequirements, {}, ".venv/bin/pip install -q -r requirements.txt"};
        std::istringstream lines(text_of(folder / kRequirements));
        for (std::string line; std::getline(lines, line);)
            project.packages.push_back(package_of(line));
        return project;
    }
    if (has_file(folder, kProject))
        return Project{kProject, required_by_project(folder / kProject), installation(folder)};
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
    const std::string factory = R"(^def\s+(create_app|make_app|get_app)\s*\()";
    const Names files = application_files(folder);
    for (const bool direct : {true, false})
        for (const std::string& file : files)
            if (const std::string name = found_in(text_of(folder / file), (direct ? made : factory).c_str());
                !name.empty())
                return {.entry = fmt::format("{}:{}", module_of(file), name),
                        .options = direct ? Names{} : Names{factory_option}};
    no_entry(because, fmt::format("no file has a line such as app = {}(...)", type));
}

// The package of the settings that manage.py names, else any that has a wsgi.py.
std::string wsgi_module(const fs::path& folder) {
    std::string package =
        found_in(text_of(folder / "manage.py"), R"(DJANGO_SETTINGS_MODULE["'],\s*["']([\w.]+)\.settings)");
    std::ranges::replace(package, '.', '/');
    Names files;
    if (!package.empty())
        files.push_back(package + "/wsgi.py");
    for (const std::string& each : source_folders(folder))
        files.push_back(each + "/wsgi.py");
    const std::string file = first_of(folder, files);
    if (file.empty())
        no_entry("manage.py", "no folder with a wsgi.py");
    return module_of(file);
}

Guess django(const fs::path& folder, const Project& project) {
    return {"django", "manage.py", {.entry = wsgi_module(folder) + ":application", .build = project.build("waitress")}};
}

Guess framework(const fs::path& folder, const Project& project, const char* name, const char* type,
                const char* factory_option, const char* server) {
    Guess guess{name, project.because(name), application(folder, project.file, type, factory_option)};
    guess.values.build = project.build(server);
    return guess;
}

} // namespace

std::optional<Guess> guess_python_framework(const fs::path& folder) {
    const auto project = project_in(folder);
    if (has_file(folder, "manage.py") && !found_in(text_of(folder / "manage.py"), "(DJANGO_SETTINGS_MODULE)").empty())
        return django(folder, project ? *project : Project{"", {}, ".venv/bin/pip install -q django"});
    if (project && project->names("fastapi"))
        return framework(folder, *project, "fastapi", "FastAPI", "--factory", "uvicorn");
    if (project && project->names("flask"))
        return framework(folder, *project, "flask", "Flask", "--call", "waitress");
    return std::nullopt;
}

std::optional<Guess> guess_python_project(const fs::path& folder) {
    const std::string entry = first_of(folder, {"server.py", "app.py", "main.py"});
    if (!project_in(folder) || entry.empty())
        return std::nullopt;
    return python_program(folder, entry);
}

Guess python_program(const fs::path& folder, const std::string& file) {
    const auto project = project_in(folder);
    if (!project)
        return {"python", file, {.entry = file}};
    return {"python",
            fmt::format("{} beside {}", file, project->file),
            {.entry = file, .program = ".venv/bin/python", .build = project->build("")}};
}

} // namespace kvmserver::cli::init
