// PHP and Ruby: the folder that is served, the application of Rack, the script.
#include <fmt/format.h>

#include "src/cli/init/guess_files.hpp"
#include "src/cli/init/guess_languages.hpp"

namespace kvmserver::cli::init {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBundle = "bundle check || bundle install";

} // namespace

std::optional<Guess> guess_php(const fs::path& folder) {
    const std::string index = first_of(folder, {"public/index.php", "web/index.php", "index.php"});
    if (index.empty())
        return std::nullopt;
    const fs::path served = fs::path(index).parent_path();
    Guess guess{"php", index, {.entry = served.empty() ? "." : served.string()}};
    if (served.empty())
        guess.because += " (every file of this folder is served, kvmserver.toml too: public/index.php is safer)";
    if (has_file(folder, "composer.json"))
        guess.values.build = "composer install -q --no-dev --no-interaction";
    return guess;
}

std::optional<Guess> guess_ruby(const fs::path& folder) {
    if (has_file(folder, "config.ru")) {
        if (found_in(text_of(folder / "Gemfile"), R"(^\s*gem\s*\(?\s*["'](puma)["'])").empty())
            no_entry("config.ru", "no Gemfile that names puma, which serves it in one process");
        return Guess{"rack", "config.ru, and Gemfile names puma", {}};
    }
    const std::string script = first_of(folder, {"server.rb", "app.rb", "main.rb"});
    if (script.empty())
        return std::nullopt;
    return ruby_program(folder, script);
}

Guess ruby_program(const fs::path& folder, const std::string& file) {
    if (!has_file(folder, "Gemfile"))
        return {"ruby", file, {.entry = file}};
    return {"ruby",
            fmt::format("{} beside Gemfile", file),
            {.entry = file, .options = {"-rbundler/setup"}, .build = kBundle}};
}

} // namespace kvmserver::cli::init
