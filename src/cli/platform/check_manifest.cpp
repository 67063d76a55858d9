#include "src/cli/platform/check_manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "src/cli/events/json_events.hpp"
#include "src/cli/options/options_from.hpp"
#include "src/cli/paths.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/program.hpp"

namespace kvmserver::cli::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 8> kScripts{".cjs", ".jar", ".js", ".mjs", ".php", ".py", ".rb", ".ts"};

void check_script(const Manifest& manifest, const Options& options, Context& context) {
    if (manifest.args.empty())
        return;
    const std::string& word = manifest.args.front();
    std::error_code error;
    if (std::ranges::find(kScripts, fs::path(word).extension().string()) != kScripts.end() &&
        !fs::exists(absolute_path(options.cwd, word), error) && !error)
        warn(context, fmt::format("{}: [run] args: there is no {} in {}", manifest.shown, word, options.cwd));
}

} // namespace

void check_manifest(const Manifest& manifest, Context& context) {
    Settings settings = read_config(manifest.file.string(), machine_options(), false, Section::snapshot).settings;
    if (!manifest.build_command.empty())
        settings.erase("warmup-requests"); // the build may make the file
    const Options options = options_from(settings, manifest.folder.string(), context.cpus);
    if (!manifest.build_command.empty()) // which may make them
        return;
    const char* const path = std::getenv("PATH");
    try {
        tinykvm::resolve_program(manifest.program, manifest.args, options.cwd, path ? path : kUsualPath);
    } catch (const tinykvm::UserError& error) {
        throw tinykvm::UserError(error.code(), fmt::format("{}: [run] program: {}", manifest.shown, error.what()));
    }
    check_script(manifest, options, context);
}

} // namespace kvmserver::cli::platform
