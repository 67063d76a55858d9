// Guesses what kind of program a folder contains.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/cli/init/templates.hpp"

namespace kvmserver::cli::init {

struct Guess {
    std::string template_name;
    std::string because; // what it was recognized by, such as "requirements.txt names flask"
    Values values;       // of the manifest
};

// Returns nothing if no known file exists. Throws UserError for a project that a manifest cannot start.
std::optional<Guess> guess_template(const std::filesystem::path& folder);

// The usual names of programs that guess_template() looks for where there is no project file, for messages.
std::string usual_names();

// The files directly in the folder that may be a program of this template, or of any ("") that starts a single file;
// without tests and settings; sorted, those that begin a program or serve before the others.
std::vector<std::string> program_files(const std::filesystem::path& folder, const std::string& template_name);

// The manifest for this file, whatever its name. `template_name`: "": told by the file's ending. Throws UserError
// (usage) if that tells nothing, or if the template does not start a single file.
Guess guess_program(const std::filesystem::path& folder, const std::string& file, const std::string& template_name);

// Whether a program of the template is one file, which guess_program() takes.
bool starts_one_file(const std::string& template_name);

} // namespace kvmserver::cli::init
