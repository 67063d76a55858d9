// New files, all or none of them.
#pragma once
#include <filesystem>
#include <vector>

#include "src/cli/init/templates.hpp"

namespace kvmserver::cli::init {

// Makes the folder and the files in it. Throws UserError (conflict) naming what is there already,
// (not_permitted) where nothing may be written; then nothing was made but perhaps the folder.
void create_files(const std::filesystem::path& folder, const std::vector<File>& files);

} // namespace kvmserver::cli::init
