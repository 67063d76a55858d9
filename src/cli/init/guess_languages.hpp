// The guesses of each language. They return nothing if the folder holds no program of theirs, and throw UserError for
// one that a manifest cannot start.
#pragma once
#include <filesystem>
#include <optional>

#include "src/cli/init/guess.hpp"

namespace kvmserver::cli::init {

std::optional<Guess> guess_python(const std::filesystem::path& folder); // a project of Django, FastAPI, Flask

} // namespace kvmserver::cli::init
