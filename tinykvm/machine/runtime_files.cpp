#include "tinykvm/machine/runtime_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tinykvm/base/path_text.hpp"
#include "tinykvm/machine/program.hpp"

namespace tinykvm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSystem[] = {
    // Libraries, and modules that are opened with dlopen: name service, character sets, engines, plug-ins.
    "/lib", "/lib64", "/usr/lib", "/usr/lib64",
    // Name service.
    "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services",
    "/etc/protocols", "/etc/passwd", "/etc/group",
    // Time, language, types.
    "/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo", "/usr/share/locale", "/etc/locale.alias",
    "/usr/share/i18n", "/etc/mime.types", "/etc/os-release",
    // Certificates of authorities; never keys.
    "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted", "/etc/crypto-policies", "/usr/share/crypto-policies", "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates", "/usr/share/pki"};

// Files of an interpreter in addition to those of the system, which include /usr/lib.
struct Interpreter {
    std::string_view name;                   // of the program's file; a version may follow
    std::vector<std::string_view> folders;   // absolute
    std::vector<std::string_view> in_prefix; // relative to the prefix
    std::vector<std::string_view> variables; // that hold folders separated by ':'
    bool takes_script = true;                // the first argument that is not an option is a file
};

const std::vector<Interpreter>& interpreters() {
    static const std::vector<Interpreter> all = {
        {"python", {"/usr/share/python3", "/etc/python3"}, {"pyvenv.cfg"}, {"PYTHONPATH", "PYTHONHOME"}},
        {"pypy", {}, {"pyvenv.cfg"}, {"PYTHONPATH"}},
        {"node", {"/usr/share/nodejs", "/usr/share/node_modules"}, {"lib/node_modules"}, {"NODE_PATH"}},
        {"nodejs", {"/usr/share/nodejs", "/usr/share/node_modules"}, {"lib/node_modules"}, {"NODE_PATH"}},
        {"bun", {}, {}, {"NODE_PATH"}},
        {"deno", {}, {}, {}},
        {"ruby",
         {"/var/lib/gems", "/usr/share/rubygems-integration", "/usr/share/ruby", "/usr/share/ruby-did_you_mean"},
         {"lib/ruby"},
         {"RUBYLIB", "GEM_HOME", "GEM_PATH"}},
        {"php", {"/etc/php", "/usr/share/php", "/etc/php.ini", "/etc/php.d"}, {"lib/php", "etc/php"}, {}},
        {"perl",
         {"/etc/perl", "/usr/share/perl", "/usr/share/perl5", "/usr/local/share/perl"},
         {"lib/perl5"},
         {"PERL5LIB"}},
        {"lua", {"/usr/share/lua", "/usr/local/share/lua", "/usr/local/lib/lua"}, {"share/lua", "lib/lua"}, {}},
        {"luajit",
         {"/usr/share/lua", "/usr/share/luajit-2.1", "/usr/local/share/lua", "/usr/local/lib/lua"},
         {"share/lua", "lib/lua"},
         {}},
        {"java", {"/usr/share/java", "/usr/share/maven-repo"}, {"release", "conf", "jmods"}, {"CLASSPATH"}, false},
        {"dotnet", {"/usr/share/dotnet"}, {"host", "shared", "sdk"}, {}},
        {"beam.smp", {"/usr/share/elixir"}, {}, {}, false}};
    return all;
}

const Interpreter* interpreter_of(const std::string& file) {
    for (const Interpreter& i : interpreters())
        if (file.starts_with(i.name) && file.find_first_not_of("0123456789.-", i.name.size()) == file.npos)
            return &i;
    return nullptr;
}

std::string normal_path(const std::string& cwd, const std::string& path) {
    return fs::path(join_path(cwd, path)).lexically_normal().string();
}

class Collector {
public:
    explicit Collector(const ProgramSpec& program) : program_(program) {}

    std::vector<std::string> run() {
        const std::string file = fs::path(program_.path).filename().string();
        const Interpreter* interpreter = interpreter_of(file);
        if (!interpreter)
            return {};
        for (const std::string_view folder : interpreter->folders)
            add(std::string(folder));
        // The prefix of a symbolic link counts, too: the program of a virtual environment links to another prefix.
        prefix(*interpreter, fs::path(program_.path));
        if (!program_.found_as.empty() && program_.found_as != program_.path)
            prefix(*interpreter, fs::path(program_.found_as));
        for (const std::string_view variable : interpreter->variables)
            variable_folders(variable);
        const std::string script = interpreter->takes_script ? script_of() : "";
        if (!script.empty())
            add(script);
        if (interpreter->name == "java")
            java_classes();
        if (interpreter->name.starts_with("node") || interpreter->name == "bun" || interpreter->name == "deno")
            node_modules(script.empty() ? program_.cwd : fs::path(script).parent_path().string());
        return std::move(files_);
    }

private:
    void add(const std::string& path) {
        if (::access(path.c_str(), F_OK) == 0 && std::find(files_.begin(), files_.end(), path) == files_.end())
            files_.push_back(path);
    }

    void prefix(const Interpreter& interpreter, const fs::path& program) {
        const fs::path folder = program.parent_path(), prefix = folder.parent_path();
        for (const std::string_view name : interpreter.in_prefix)
            add((prefix / name).string());
        if (interpreter.name == "python" || interpreter.name == "pypy") {
            python_prefix(folder, prefix);
            python_libraries("/etc"); // Debian's sitecustomize
        }
        if (interpreter.name == "java" && fs::exists(prefix / "lib/modules")) {
            add((prefix / "lib").string());
            java_configuration(prefix / "conf");
        }
    }

    // Debian's JDK links to its configuration in /etc/java-17-openjdk.
    void java_configuration(const fs::path& conf) {
        std::error_code error;
        const fs::path real = fs::canonical(conf / "security/java.security", error);
        if (const std::string folder = real.parent_path().parent_path().string(); folder.starts_with("/etc/java"))
            add(folder);
    }

    // As in CPython's Modules/getpath.py: lib/pythonX.Y of the prefix, of pyvenv.cfg's home, and Debian's /usr/local.
    void python_prefix(const fs::path& folder, const fs::path& prefix) {
        for (const fs::path& at : {prefix, fs::path("/usr/local")})
            for (const char* lib : {"lib", "lib64"})
                python_libraries(at / lib);
        for (const fs::path& config : {folder / "pyvenv.cfg", prefix / "pyvenv.cfg"}) {
            add(config.string());
            std::ifstream in(config);
            for (std::string line; std::getline(in, line);) {
                const std::size_t equals = line.find('=');
                if (!line.starts_with("home") || equals == line.npos)
                    continue;
                const std::size_t begin = line.find_first_not_of(" \t", equals + 1);
                if (begin != line.npos && line[begin] == '/')
                    for (const char* lib : {"lib", "lib64"})
                        python_libraries(fs::path(line.substr(begin)).parent_path() / lib);
            }
        }
    }

    void python_libraries(const fs::path& lib) {
        std::error_code error;
        for (const fs::directory_entry& entry : fs::directory_iterator(lib, error)) {
            const std::string name = entry.path().filename().string();
            if ((name.starts_with("python") || name.starts_with("pypy")) &&
                (fs::is_directory(entry.path(), error) || name.ends_with(".zip")))
                add(entry.path().string());
        }
    }

    void variable_folders(std::string_view name) {
        for (const auto* variables : {&program_.env, &program_.late_env})
            for (const std::string& entry : *variables) {
                if (entry.size() <= name.size() || !entry.starts_with(name) || entry[name.size()] != '=')
                    continue;
                path_list(entry.substr(name.size() + 1));
            }
    }

    void path_list(std::string list) {
        while (!list.empty()) {
            const std::size_t end = std::min(list.find(':'), list.size());
            const std::string item = normal_path(program_.cwd, list.substr(0, end));
            if (end > 0 && item != "/")
                add(item.ends_with("/*") ? item.substr(0, item.size() - 2) : item);
            list.erase(0, end + 1);
        }
    }

    // The first argument that is a file. If it is the value of an option, the program is meant to read it, too.
    std::string script_of() const {
        if (!program_.script.empty())
            return normal_path(program_.cwd, program_.script);
        for (std::size_t i = 1; i < program_.args.size(); ++i) {
            const std::string& word = program_.args[i];
            if (word.empty() || word == "-" || word == "--")
                continue;
            if (word[0] == '-')
                continue;
            std::string path = normal_path(program_.cwd, word);
            std::error_code error;
            if (fs::is_regular_file(path, error))
                return path;
        }
        return {};
    }

    // -jar FILE and the class path: files that the user named for the program to load.
    void java_classes() {
        for (std::size_t i = 1; i < program_.args.size(); ++i) {
            const std::string& word = program_.args[i];
            const bool list = word == "-cp" || word == "-classpath" || word == "--class-path" || word == "-p" ||
                              word == "--module-path";
            if (list && i + 1 < program_.args.size())
                path_list(program_.args[++i]);
            else if (word.starts_with("--class-path=") || word.starts_with("--module-path="))
                path_list(word.substr(word.find('=') + 1));
            else if (word.starts_with("-javaagent:"))
                add(normal_path(program_.cwd, word.substr(11, word.find('=') - 11)));
            else if (word == "-jar" && i + 1 < program_.args.size())
                add(normal_path(program_.cwd, program_.args[i + 1]));
            else if (word.ends_with(".java"))
                add(normal_path(program_.cwd, word));
            if (word == "-jar" || !word.starts_with('-'))
                break; // the rest are arguments of the program
        }
    }

    // Node's look-up of modules (Modules: "Loading from node_modules folders", "Determining module system").
    void node_modules(const std::string& folder) {
        fs::path at = folder;
        std::error_code error;
        for (const fs::path& real : {fs::path(folder), fs::canonical(folder, error)}) {
            if (real.empty())
                continue;
            for (at = real;; at = at.parent_path()) {
                add((at / "package.json").string());
                add((at / "node_modules").string());
                if (at == at.parent_path())
                    break;
            }
        }
    }

    const ProgramSpec& program_;
    std::vector<std::string> files_;
};

} // namespace

std::vector<std::string> system_files(const std::string& root) {
    std::vector<std::string> files;
    for (const std::string_view path : kSystem)
        if (::access((root + std::string(path)).c_str(), F_OK) == 0)
            files.emplace_back(path);
    return files;
}

std::vector<std::string> interpreter_files(const ProgramSpec& program) { return Collector(program).run(); }

} // namespace tinykvm
