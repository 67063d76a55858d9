// "Did you mean": the known word that a mistyped one is closest to.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::cli {

// Nothing when none is close enough to be a slip of the fingers.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

// "; did you mean PREFIXword?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known, std::string_view prefix = "");

} // namespace kvmserver::cli
