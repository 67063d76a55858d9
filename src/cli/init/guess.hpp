// Guesses what kind of program a folder contains.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace kvmserver::cli::init {

struct Guess {
    std::string template_name;
    std::string because; // the file that it was recognized by
    std::string entry;   // for {{entry}} of the template's manifest
};

// Returns nothing if no known file exists. Throws UserError for a project that a manifest cannot start.
std::optional<Guess> guess_template(const std::filesystem::path& folder);

} // namespace kvmserver::cli::init
