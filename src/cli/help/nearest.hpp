// "Did you mean": finds the known word that is closest to a mistyped one.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::cli {

// Returns nothing if no word is close enough.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

// "; did you mean PREFIXword?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known, std::string_view prefix = "");

} // namespace kvmserver::cli
