// Examples for --help and the manual page.
#pragma once
#include <span>
#include <string_view>

namespace kvmserver::cli {

struct Example {
    std::string_view command; // the name of the command that it is for
    std::string_view line;
    std::string_view does;
};

std::span<const Example> examples_of(std::string_view command);

} // namespace kvmserver::cli
