// A file of ceilings: TOML, ceilings for all functions, and by the beginning of a function's name.
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

    CeilingsFile() = default; // none
    // Throws UserError of one line that names file and line: usage, not_found, not_permitted.
    static CeilingsFile read(const std::filesystem::path& path);
    // One section, for a token.
    static Ceilings read_single(const std::filesystem::path& path);

    // Of a function: those for all, each replaced by that of the longest of its prefixes that has one.
    Ceilings of(std::string_view function) const;
    // Every section that is about the function. Totals (functions, disk_bytes) count all functions of their
    // section.
    std::vector<Section> sections_of(std::string_view function) const;

private:
    std::vector<Section> sections_; // shorter prefixes first
};

} // namespace kvmserver
