// A ceilings file (TOML): ceilings for all functions, and for functions by prefix of their names.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/ceilings/ceilings.hpp"

namespace kvmserver {

class CeilingsFile {
public:
    // Ceilings for the functions whose names begin with `prefix`.
    struct Section {
        std::string prefix;
        Ceilings ceilings;
    };

    CeilingsFile() = default; // no ceilings
    // Throws UserError (usage, not_found, not_permitted) with one line that names file and line.
    static CeilingsFile read(const std::filesystem::path& path);
    // Reads a file of a single section, for a token.
    static Ceilings read_single(const std::filesystem::path& path);

    // Ceilings of a function: those for all functions, each overridden by the longest matching prefix that sets it.
    Ceilings of(std::string_view function) const;
    // All sections that apply to the function. Totals (functions, disk_bytes) count all functions of their section.
    std::vector<Section> sections_of(std::string_view function) const;

private:
    std::vector<Section> sections_; // shorter prefixes first
};

} // namespace kvmserver
