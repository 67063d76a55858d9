// Text of manual pages: roff with the man macros.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "src/cli/options/option_table.hpp"

namespace kvmserver::cli {

std::string roff(std::string_view text); // escaped
std::string roff_bold(std::string_view text);
std::string roff_italic(std::string_view text);

// The same words in lines of at most 79 bytes, if words allow it.
std::string roff_filled(std::string_view text);

// ".TH ...": `name` is "kvmserver" or "kvmserver-deploy".
std::string roff_title(std::string_view name);

// A tagged paragraph for an option.
std::string roff_option(const OptionSpec& spec);

// A tagged paragraph; both are roff already.
std::string roff_entry(std::string_view tag, std::string_view text);

// ".SH EXIT STATUS" for all commands; `more` is roff that follows.
std::string roff_exit_status(std::string_view more);

} // namespace kvmserver::cli
