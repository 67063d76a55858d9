#include "src/cli/platform/warmup.hpp"

#include <fmt/format.h>

#include "src/cli/options/config_file.hpp"
#include "src/cli/options/option_table.hpp"

namespace kvmserver::cli::platform {

std::vector<std::string> warmup_words(const Manifest& manifest, unsigned seconds) {
    const ConfigFile config = read_config(manifest.file.string(), machine_options(), false);
    std::vector<std::string> words;
    const auto add = [&](const std::string& name, const std::string& value) {
        if (!config.settings.contains(name))
            words.insert(words.end(), {"--" + name, value});
    };
    add("warmup", "auto");
    if (!manifest.health.empty())
        add("warmup-path", manifest.health);
    if (seconds != 0)
        add("max-warmup-time", fmt::to_string(seconds));
    return words;
}

} // namespace kvmserver::cli::platform
