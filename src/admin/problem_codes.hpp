// The codes of the API's problem documents: what clients may rely on.
#pragma once
#include <span>
#include <string_view>

namespace kvmserver::admin {

struct ProblemCode {
    std::string_view code;
    unsigned status = 0;
    std::string_view meaning;
};

// By status. A code has a row for each status that it comes with.
std::span<const ProblemCode> problem_codes();

} // namespace kvmserver::admin
