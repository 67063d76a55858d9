// What the facts mean: one line a check, and what would mend it.
#pragma once
#include <string>
#include <vector>

#include "src/cli/doctor/facts.hpp"

namespace kvmserver::cli::doctor {

struct Check {
    std::string line;
    bool stops = false; // machines cannot run
    // A command that mends it and can do no harm, for `--fix`; as root only. Empty: a person must decide.
    std::vector<std::string> mend = {};
};

// Up to the first that stops: whether the device is there and may be opened.
std::vector<Check> device_checks(const Facts& facts);
// Whether what runs will run well.
std::vector<Check> other_checks(const Facts& facts);

} // namespace kvmserver::cli::doctor
