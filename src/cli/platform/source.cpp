#include "src/cli/platform/source.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdlib>

#include "src/cli/paths.hpp"
#include "src/cli/platform/child.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::platform {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr const char* kManifest = "kvmserver.toml";

// Runs it to its end, what it prints goes to stderr; when quiet only if it fails.
void run(const std::vector<std::string>& argv, const std::string& folder, const std::string& what, bool quiet,
         Context& context) {
    context.err.flush();
    const auto captured = memory_file("kvmserver-output");
    Child child(argv, folder, quiet ? captured.get() : STDERR_FILENO);
    const int status = child.wait();
    if (status == 0)
        return;
    if (quiet)
        context.err << text_of(captured.get());
    throw UserError(ExitCode::failure,
                    fmt::format("{} ended with status {}; nothing was deployed", what, status));
}

} // namespace

Source find_source(const std::string& operand, const Context& context) {
    std::filesystem::path path = absolute_path(context.folder, operand);
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
        path /= kManifest;
        if (!std::filesystem::exists(path, error))
            throw UserError(
                ExitCode::not_found,
                fmt::format("there is no {} in {}: give a snapshot, a manifest or a folder with one",
                            kManifest, path.parent_path().string()));
    } else if (!std::filesystem::exists(path, error)) {
        throw UserError(ExitCode::not_found, fmt::format("{}: there is no such file", operand));
    }
    Source source{path, std::nullopt};
    if (path.extension() == ".toml")
        source.manifest = read_manifest(path);
    return source;
}

SnapshotFile::SnapshotFile(const Source& source, bool quiet, Context& context) : path_(source.path) {
    if (!source.manifest)
        return;
    std::string folder = (std::filesystem::temp_directory_path() / "kvmserver-deploy-XXXXXX").string();
    if (!::mkdtemp(folder.data()))
        tinykvm::throw_errno("mkdtemp " + folder);
    temporary_ = folder;
    path_ = temporary_ / "function.snap";
    try {
        build(*source.manifest, quiet, context);
    } catch (...) {
        std::error_code error;
        std::filesystem::remove_all(temporary_, error);
        throw;
    }
}

SnapshotFile::~SnapshotFile() {
    std::error_code error;
    if (!temporary_.empty())
        std::filesystem::remove_all(temporary_, error);
}

void SnapshotFile::build(const Manifest& manifest, bool quiet, Context& context) {
    const std::string folder = manifest.folder.string();
    if (!manifest.build_command.empty())
        run({"/bin/sh", "-c", manifest.build_command}, folder, "[function.build] command", quiet, context);
    std::vector<std::string> words{
        kSelf, "snapshot",      "-c",      manifest.file.string(),
        "-o",  path_.string(),  "--cache", "none", // it goes into the store, and then away
        "--",  manifest.program};
    words.insert(words.end(), manifest.args.begin(), manifest.args.end());
    run(words, folder, "kvmserver snapshot", quiet, context);
}

} // namespace kvmserver::cli::platform
