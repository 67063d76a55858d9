// From what was written to what it means: Settings to Options. Numbers are read here: CLI::Range 2.1.2 takes "010"
// for 8 and "-18446744073709551612" for 4, CLI::PositiveNumber accepts "nan". CLI::IsMember names no nearest word.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/options/settings.hpp"
#include "src/setup/options.hpp"

namespace kvmserver::cli {

// Checks every value and throws UserError (usage) naming the option, and the line when it is in the file. The
// program and its arguments are not touched. Rewrites `settings` to what they mean here: paths absolute, -t 0
// as a number.
Options options_from(Settings& settings, const std::string& folder, unsigned cpus);

// The value of an option that hands on a descriptor. Throws UserError (usage).
int descriptor_of(const Setting& setting, std::string_view name);

} // namespace kvmserver::cli
