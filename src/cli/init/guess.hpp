// What kind of program a folder holds.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace kvmserver::cli::init {

struct Guess {
    std::string template_name;
    std::string because; // the file that told it
    std::string entry;   // for {{entry}} of the template's manifest
};

// Nothing when there is no file that tells. Throws UserError for a project that one manifest cannot start.
std::optional<Guess> guess_template(const std::filesystem::path& folder);

} // namespace kvmserver::cli::init
