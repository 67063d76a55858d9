// The guesses of each language. They return nothing if the folder holds no program of theirs, and throw UserError for
// one that a manifest cannot start.
#pragma once
#include <filesystem>
#include <optional>

#include "src/cli/init/guess.hpp"

namespace kvmserver::cli::init {

// Django, FastAPI, Flask; a program beside requirements.txt or pyproject.toml.
std::optional<Guess> guess_python_framework(const std::filesystem::path& folder);
std::optional<Guess> guess_python_project(const std::filesystem::path& folder);
std::optional<Guess> guess_javascript(const std::filesystem::path& folder); // Next.js, Bun, Express, Node
std::optional<Guess> guess_java(const std::filesystem::path& folder);       // built by Maven or Gradle
std::optional<Guess> guess_php(const std::filesystem::path& folder);
std::optional<Guess> guess_ruby(const std::filesystem::path& folder); // a Rack application, a script

// Manifests for this file, which need not have a usual name. They install what the project beside it requires.
Guess python_program(const std::filesystem::path& folder, const std::string& file);
Guess javascript_program(const std::filesystem::path& folder, const std::string& file, const std::string& name);
Guess ruby_program(const std::filesystem::path& folder, const std::string& file);

} // namespace kvmserver::cli::init
