#include "src/cli/machine/shims.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "src/cli/init/guess_files.hpp"
#include "src/ops/child.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/machine/program.hpp"

namespace kvmserver::cli {
namespace {

namespace fs = std::filesystem;
using tinykvm::ExitCode;
using tinykvm::UserError;

// Of managers whose shims are shell scripts: `exec "/root/.pyenv/libexec/pyenv" exec "$program" "$@"`.
constexpr const char* kLastLine =
    R"re(^\s*exec\s+"?((?:[^\s"]*/)?(?:asdf|goenv|jenv|luaenv|nodenv|phpenv|plenv|pyenv|rbenv))"?\s+exec\s)re";
constexpr std::uintmax_t kLargestShim = 4096;

// Their shims are links to a program, and one beside it tells what they stand for.
struct Linked {
    std::string_view program, manager;
};
constexpr Linked kOfLinks[] = {{"mise", "mise"}, {"volta-shim", "volta"}};

bool executable(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// Returns "" if there is none.
std::string in_search_path(const std::string& search_path, const std::string& name) {
    for (std::size_t at = 0; at <= search_path.size();) {
        const std::size_t end = std::min(search_path.find(':', at), search_path.size());
        if (std::string path = search_path.substr(at, end - at) + '/' + name; path.starts_with('/') && executable(path))
            return path;
        at = end + 1;
    }
    return {};
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::optional<Shim> script_shim(const std::string& path, const std::string& search_path) {
    std::error_code error;
    if (const auto bytes = fs::file_size(path, error); error || bytes > kLargestShim)
        return std::nullopt;
    const std::string text = init::text_of(path);
    if (!text.starts_with("#!"))
        return std::nullopt;
    std::string manager = init::found_in(text, kLastLine);
    if (!manager.empty() && manager.find('/') == manager.npos)
        manager = in_search_path(search_path, manager);
    return manager.starts_with('/') ? std::optional<Shim>({path, manager, last_part(path)}) : std::nullopt;
}

std::optional<Shim> linked_shim(const std::string& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    for (const auto& [program, manager] : kOfLinks)
        if (!error && real.filename() == program && last_part(path) != program)
            return Shim{path, real.parent_path() / manager, last_part(path)};
    return std::nullopt;
}

struct Answer {
    int status;
    std::string out, err;
};

Answer ask(const Shim& shim, const std::string& folder) {
    const tinykvm::UniqueFd out = ops::memory_file("kvmserver-which"), err = ops::memory_file("kvmserver-which");
    const pid_t child = ops::start_child({shim.manager, "which", shim.name},
                                         {.folder = folder, .output = out.get(), .error = err.get()});
    int status = 0;
    while (::waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            tinykvm::throw_errno("wait for " + shim.manager);
    return {ops::shell_status(status), ops::text_of(out.get()), ops::text_of(err.get())};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string real_program(const Shim& shim, const std::string& folder) {
    const std::string manager = last_part(shim.manager);
    const auto fail = [&](const std::string& why) {
        throw UserError(ExitCode::not_found,
                        fmt::format("{} is a shim of {}, and `{} which {}` {}; name the real program", shim.path,
                                    manager, manager, shim.name, why));
    };
    const Answer answer = ask(shim, folder);
    std::string program = first_line(answer.out);
    if (answer.status != 0)
        fail(fmt::format("ended with status {}: {}", answer.status,
                         tinykvm::brief(first_line(answer.err.empty() ? answer.out : answer.err))));
    if (!program.starts_with('/') || !executable(program) || shim_at(program, ""))
        fail(fmt::format("names no program: {}", tinykvm::brief(program)));
    return program;
}

} // namespace

std::optional<Shim> shim_at(const std::string& path, const std::string& search_path) {
    auto shim = linked_shim(path);
    return shim ? shim : script_shim(path, search_path);
}

void substitute_shims(Options& options, Context& context) {
    const char* const set = std::getenv("PATH");
    const std::string search_path = set ? set : kUsualPath;
    bool asking = false;
    const auto substitute = [&](const std::string& found) {
        const auto shim = shim_at(found, search_path);
        if (!shim)
            return found;
        asking = true;
        const std::string program = real_program(*shim, options.cwd);
        asking = false;
        context.err << fmt::format("kvmserver: {} is a shim of {}: using {}\n", found, last_part(shim->manager),
                                   program);
        return options.substitutes[found] = program;
    };
    tinykvm::ProgramSpec program;
    try {
        program = tinykvm::resolve_program(options.program, options.args, options.cwd, search_path, substitute);
    } catch (const UserError&) {
        if (asking)
            throw;
        return; // the boot finds and tells it
    }
    if (const auto shim = program.script.empty() ? std::nullopt : shim_at(program.script, search_path))
        throw UserError(ExitCode::usage,
                        fmt::format("{} is a shim of {}, which starts another program, as machines cannot: name the "
                                    "real one, which `{} which {}` prints, or just {}",
                                    program.script, last_part(shim->manager), last_part(shim->manager), shim->name,
                                    shim->name));
}

} // namespace kvmserver::cli
