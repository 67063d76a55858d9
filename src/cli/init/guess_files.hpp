// What the guesses look for in a folder.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "src/cli/init/guess.hpp"

namespace kvmserver::cli::init {

using Names = std::vector<std::string>;

// The first of these files that exists, or "".
std::string first_of(const std::filesystem::path& folder, const Names& names);
bool has_file(const std::filesystem::path& folder, const std::string& name);
// The first file, by name, with this ending, or "".
std::string with_ending(const std::filesystem::path& folder, const std::string& ending);
// The names of folders in it that may hold a program's sources, sorted.
Names source_folders(const std::filesystem::path& folder);
// Its text, of which at most 1 MiB counts; "" if it cannot be read.
std::string text_of(const std::filesystem::path& file);
// The first group of the expression's first match, or "".
std::string found_in(const std::string& text, const char* expression);

// Throws UserError (not_found): the project cannot be started.
[[noreturn]] void no_entry(const std::string& because, const std::string& what);
// The guess with the first of these files as its entry. Throws as no_entry if there is none.
Guess with_entry(const std::filesystem::path& folder, const std::string& name, const std::string& because,
                 const Names& entries);

} // namespace kvmserver::cli::init
