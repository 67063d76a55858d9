// Guesses what kind of program a folder contains.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "src/cli/init/templates.hpp"

namespace kvmserver::cli::init {

struct Guess {
    std::string template_name;
    std::string because; // what it was recognized by, such as "requirements.txt names flask"
    Values values;       // of the manifest
};

// Returns nothing if no known file exists. Throws UserError for a project that a manifest cannot start.
std::optional<Guess> guess_template(const std::filesystem::path& folder);

} // namespace kvmserver::cli::init
