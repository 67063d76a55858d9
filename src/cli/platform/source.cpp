#include "src/cli/platform/source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "src/cli/options/config_file.hpp"
#include "src/cli/options/option_table.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/child.hpp"
#include "src/cli/platform/held_signals.hpp"
#include "src/cli/platform/warmup.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/elf/stack.hpp"

namespace kvmserver::cli::platform {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr const char* kManifest = "kvmserver.toml";

class TemporaryFolder {
public:
    TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "kvmserver-deploy-XXXXXX").string()) {
        if (!::mkdtemp(path_.data()))
            tinykvm::throw_errno("mkdtemp " + path_);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    std::string operator/(const char* name) const { return path_ + '/' + name; }

private:
    std::string path_;
};

// Runs a command to its end and returns its status. Its output goes to stderr; if `quiet`, only on failure.
int run(const std::vector<std::string>& argv, const std::string& folder, bool quiet, const HeldSignals& held,
        Context& context) {
    context.err.flush();
    const auto captured = memory_file("kvmserver-output");
    Child child(argv, folder, quiet ? captured.get() : STDERR_FILENO);
    held.wait_readable(child.end_fd().get());
    const int status = child.wait();
    if (quiet && status != 0)
        context.err << text_of(captured.get());
    return status;
}

// Variables to reserve room for in the program's environment: the file's own late-env, [function.env], and secrets,
// whose values must not be in a snapshot.
std::vector<std::string> late_variables(const Manifest& manifest) {
    std::vector<std::string> variables;
    const ConfigFile config = read_config(manifest.file.string(), machine_options(), false);
    if (const auto given = config.settings.find("late-env"); given != config.settings.end())
        variables = given->second.values;
    for (const auto& [name, value] : manifest.env)
        if (const std::string variable = fmt::format("{}={}", name, value); variable.size() < tinykvm::kLateEnvBytes)
            variables.push_back(variable); // read_manifest() has warned about longer ones
    for (const std::string& name : manifest.secrets)
        if (!manifest.env.contains(name))
            variables.push_back(name);
    return variables;
}

// Builds the program and makes its snapshot.
tinykvm::UniqueFd make(const Manifest& manifest, bool quiet, Context& context, bool hurry) {
    const HeldSignals held;
    const TemporaryFolder temporary;
    const std::string folder = manifest.folder.string();
    if (!manifest.build_command.empty())
        if (const int status = run({"/bin/sh", "-c", manifest.build_command}, folder, quiet, held, context))
            throw UserError(ExitCode::failure,
                            fmt::format("[function.build] command ended with status {}; nothing was stored", status));
    const std::string path = temporary / "function.snap";
    std::vector<std::string> words{kSelf, "snapshot", "-c",         manifest.file.string(),
                                   "-o",  path,       "--temporary"}; // it goes into the store and is then deleted
    if (hurry)
        words.emplace_back("--hurry");
    const std::vector<std::string> warmup = warmup_words(manifest);
    words.insert(words.end(), warmup.begin(), warmup.end());
    for (const std::string& variable : late_variables(manifest))
        words.insert(words.end(), {"--late-env", variable});
    words.insert(words.end(), {"--", manifest.program});
    words.insert(words.end(), manifest.args.begin(), manifest.args.end());
    if (const int status = run(words, folder, quiet, held, context))
        throw UserError(ops::exit_code_of(status),
                        fmt::format("no snapshot was made (status {}; the reason is above), so nothing was stored; "
                                    "`kvmserver dev --watch -v {}` shows each refusal and tries again as you edit",
                                    status, folder));
    tinykvm::UniqueFd made(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!made)
        tinykvm::throw_errno("open " + path);
    return made;
}

} // namespace

Source find_source(const std::string& operand, const Context& context) {
    std::filesystem::path path = absolute_path(context.folder, operand);
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
        path /= kManifest;
        if (!std::filesystem::exists(path, error))
            throw UserError(ExitCode::not_found,
                            fmt::format("there is no {} in {}: give a snapshot, a manifest or a folder with one",
                                        kManifest, path.parent_path().string()));
    } else if (!std::filesystem::exists(path, error)) {
        if (error)
            throw UserError(ExitCode::not_permitted, fmt::format("{}: {}", operand, error.message()));
        throw UserError(ExitCode::not_found, fmt::format("{}: there is no such file or folder", operand));
    }
    Source source{path, std::nullopt};
    if (path.extension() == ".toml")
        source.manifest = read_manifest(path);
    return source;
}

SnapshotFile::SnapshotFile(const Source& source, bool quiet, Context& context, Compress compress) : path_(source.path) {
    if (!source.manifest)
        return;
    hurried_ = compress == Compress::in_a_hurry &&
               !read_config(source.manifest->file.string(), machine_options(), false).settings.contains("level");
    try {
        made_ = make(*source.manifest, quiet, context, hurried_);
    } catch (const Interrupted& interrupted) {
        interrupted.end();
        throw UserError(ExitCode::failure, "interrupted; nothing was stored");
    }
    path_ = fmt::format("/proc/self/fd/{}", made_.get());
}

} // namespace kvmserver::cli::platform
