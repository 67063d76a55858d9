#include "src/cli/platform/warmup.hpp"

#include <algorithm>
#include <array>

#include "src/cli/options/config_file.hpp"
#include "src/cli/options/option_table.hpp"

namespace kvmserver::cli::platform {

namespace {

void add_paths(std::vector<std::string>& words, const Manifest& manifest, const ConfigFile& config) {
    if (!manifest.before_snapshot.empty())
        words.insert(words.end(), {"--before-snapshot", manifest.before_snapshot});
    if (!manifest.health.empty() && !config.settings.contains("warmup-path") &&
        !config.settings.contains("warmup-requests"))
        words.insert(words.end(), {"--warmup-path", manifest.health});
}

} // namespace

bool lacks_warmup_for_storage(const Manifest& manifest) {
    if (!manifest.has_storage || !manifest.is_http() || manifest.kept || !manifest.health.empty())
        return false;
    const ConfigFile config = read_config(manifest.file.string(), machine_options(), false, Section::snapshot);
    return std::ranges::none_of(std::array{"warmup", "warmup-path", "warmup-requests"},
                                [&](const char* name) { return config.settings.contains(name); });
}

std::vector<std::string> warmup_words(const Manifest& manifest) {
    const ConfigFile config = read_config(manifest.file.string(), machine_options(), false, Section::snapshot);
    std::vector<std::string> words;
    if (!config.settings.contains("warmup"))
        // What is kept would keep what a warm-up changed.
        words = {"--warmup", !manifest.is_http() || manifest.kept || lacks_warmup_for_storage(manifest) ? "0" : "auto"};
    add_paths(words, manifest, config);
    return words;
}

std::vector<std::string> short_warmup_words(const Manifest& manifest) {
    const ConfigFile config = read_config(manifest.file.string(), machine_options(), false);
    std::vector<std::string> words;
    const auto warmup = config.settings.find("warmup");
    if (warmup != config.settings.end() && warmup->second.values.front() == "auto")
        words = {"--warmup", "0"};
    add_paths(words, manifest, config);
    return words;
}

} // namespace kvmserver::cli::platform
