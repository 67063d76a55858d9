// Turns the facts into checks: one line each, with a remedy.
#pragma once
#include <string>
#include <vector>

#include "src/cli/doctor/facts.hpp"

namespace kvmserver::cli::doctor {

struct Check {
    std::string line;
    bool stops = false; // machines cannot run
    // A harmless command that fixes the problem, for `--fix`; needs root. Empty: a person must decide.
    std::vector<std::string> mend = {};
};

// Checks whether the device exists and may be opened, up to the first failure.
std::vector<Check> device_checks(const Facts& facts);
// Checks whether machines will run well.
std::vector<Check> other_checks(const Facts& facts);

} // namespace kvmserver::cli::doctor
