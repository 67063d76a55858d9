// Creates new files: all or none.
#pragma once
#include <filesystem>
#include <vector>

#include "src/cli/init/templates.hpp"

namespace kvmserver::cli::init {

// Creates the folder and its files. Throws UserError: conflict names a file that exists already, not_permitted that
// nothing may be written. After an exception no file was created, but perhaps the folder.
void create_files(const std::filesystem::path& folder, const std::vector<File>& files);

} // namespace kvmserver::cli::init
