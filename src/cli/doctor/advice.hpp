// Turns the facts into checks: one line each, with a remedy.
#pragma once
#include <string>
#include <vector>

#include "src/cli/doctor/facts.hpp"

namespace kvmserver::cli::doctor {

struct Check {
    std::string subject; // stable, for --json: device, files, memory, store ...
    enum class State {
        good,
        advice, // machines run, but something could be better
        stops,  // machines cannot run
    } state = State::good;
    std::string line;
    // A harmless command that fixes the problem, for `--fix`; needs root. Empty: a person must decide.
    std::vector<std::string> mend = {};
    bool stops() const { return state == State::stops; }
};

// Checks whether the device exists and may be opened, up to the first failure.
std::vector<Check> device_checks(const Facts& facts);
// Checks whether machines will run well.
std::vector<Check> other_checks(const Facts& facts);

} // namespace kvmserver::cli::doctor
