#include "src/cli/paths.hpp"

#include <filesystem>

namespace kvmserver::cli {

std::string absolute_path(const std::string& folder, const std::string& path) {
    std::string text = (std::filesystem::path(folder) / path).lexically_normal().string();
    while (text.size() > 1 && text.ends_with('/'))
        text.pop_back();
    return text;
}

} // namespace kvmserver::cli
