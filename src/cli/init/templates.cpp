#include "src/cli/init/templates.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/cli/help/nearest.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::init {
namespace {

constexpr std::string_view kPipInstall = "python3 -m venv .venv && .venv/bin/pip install -q -r requirements.txt";

constexpr std::string_view kNextBuild = "npm install && npm run build && cp -r .next/static .next/standalone/.next/";

constexpr Template kTemplates[] = {
    {"c", "C: a blocking server on the C library alone", "server.c"},
    {"rust", "Rust: threads on the standard library alone", "server"},
    {"go", "Go: net/http", "server"},
    {"python", "Python: http.server", "server.py", "python3"},
    {"node", "Node: node:http", "server.js"},
    {"deno", "Deno: Deno.serve, TypeScript", "server.ts"},
    {"flask", "Python: Flask on waitress", "app:app", {}, {}, kPipInstall},
    {"fastapi", "Python: FastAPI on uvicorn", "main:app", {}, {}, kPipInstall},
    {"django", "Python: Django on waitress", "website.wsgi:application", {}, {}, kPipInstall},
    {"express", "Node: Express", "server.js", {}, {}, "npm install --omit=dev"},
    {"next", "Node: Next.js, standalone", ".next/standalone/server.js", {}, {}, kNextBuild},
    {"bun", "Bun: Bun.serve, TypeScript", "server.ts"},
    {"php", "PHP: its own server", "public"},
    {"ruby", "Ruby: WEBrick", "server.rb"},
    {"rack", "Ruby: a Rack application on Puma", "config.ru", {}, {}, "bundle check || bundle install"},
    {"java", "Java: com.sun.net.httpserver, by Maven", "target/server-1.0.jar", {}, "-jar", "mvn -q -B package"},
    {"java-gradle", "Java: the same, by Gradle", "build/libs/server.jar", {}, "-jar", "gradle -q assemble"},
};

constexpr std::string_view kManifest = "kvmserver.toml";
// A file named .gitignore would also apply to our own source tree.
constexpr std::string_view kIgnored = "dot_gitignore";
// The templates' programs listen here; another program may listen elsewhere.
constexpr std::string_view kListen = R"(allow-listen = ["127.0.0.1:8080"])";
constexpr std::string_view kListenAnywhere =
    R"(allow-listen = true # anywhere; the program's own address, as ["127.0.0.1:8080"], is safer)";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    return text;
}

// Escaped for a TOML string in quotes.
std::string toml_escaped(const std::string& text) {
    std::string escaped;
    for (const char c : text)
        if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte == 0x7f)
            escaped += fmt::format("\\u{:04x}", byte);
        else
            escaped += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
    return escaped;
}

std::string filled_in(std::string_view text, const Template& chosen, const std::string& name, const Values& values) {
    const auto either = [](const std::string& given, std::string_view own) {
        return given.empty() ? std::string(own) : toml_escaped(given);
    };
    std::string options =
        chosen.option.empty() || !values.options.empty() ? "" : fmt::format("\"{}\", ", chosen.option);
    for (const std::string& option : values.options)
        options += fmt::format("\"{}\", ", toml_escaped(option));
    const std::pair<std::string_view, std::string> all[] = {
        {"{{name}}", name},
        {"{{entry}}", either(values.entry, chosen.entry)},
        {"{{options}}", options},
        {"{{program}}", either(values.program, chosen.program)},
        {"{{build}}", either(values.build, chosen.build)},
    };
    std::string filled(text);
    for (const auto& [from, to] : all)
        filled = replaced(std::move(filled), from, to);
    return filled;
}

} // namespace

const char* const kNoDotnet =
    ".NET is not supported: its System.Random would give every request the same values (docs/UNIQUENESS.md)";

std::span<const Template> templates() { return kTemplates; }

const Template& find_template(const std::string& name) {
    for (const char* dotnet : {"dotnet", "csharp", "aspnet", ".net"})
        if (name == dotnet)
            throw tinykvm::UserError(tinykvm::ExitCode::usage, kNoDotnet);
    std::vector<std::string> names;
    for (const Template& each : kTemplates) {
        if (each.name == name)
            return each;
        names.emplace_back(each.name);
    }
    throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("there is no template '{}'{}; kvmserver init --list",
                                                                   name, did_you_mean(name, names)));
}

std::string template_names() {
    std::string names;
    for (const Template& each : kTemplates)
        names += fmt::format("{}{}", names.empty() ? "" : "|", each.name);
    return names;
}

std::vector<File> files_of(const Template& chosen, const std::string& name) {
    const std::string folder = std::string(chosen.name) + '/';
    std::vector<File> files;
    for (const EmbeddedFile& file : embedded_files()) {
        if (!file.path.starts_with(folder))
            continue;
        const std::string_view path = file.path.substr(folder.size());
        files.push_back({std::string(path == kIgnored ? ".gitignore" : path), filled_in(file.text, chosen, name, {})});
    }
    std::stable_partition(files.begin(), files.end(), [](const File& file) { return file.path != kManifest; });
    return files;
}

File manifest_of(const Template& chosen, const std::string& name, const Values& values) {
    const std::string path = fmt::format("{}/{}", chosen.name, kManifest);
    const auto found = std::ranges::find(embedded_files(), path, &EmbeddedFile::path);
    std::string text = replaced(filled_in(found->text, chosen, name, values), kListen, kListenAnywhere);
    if (!values.build.empty() && found->text.find("{{build}}") == found->text.npos)
        text += fmt::format("\n[function.build]\ncommand = \"{}\"\n", toml_escaped(values.build));
    return {std::string(kManifest), text};
}

} // namespace kvmserver::cli::init
