// Reads a file of warm-up requests.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/setup/warmup_request.hpp"

namespace kvmserver::cli {

// The format of the ".http" files that editors send requests from: a request line, header lines, an empty line, the
// body; requests are separated by lines that begin with ###. Without their variables, scripts and bodies from files.
// `name` is for messages. Throws UserError (usage) that names the line.
std::vector<WarmupRequest> parse_warmup_requests(std::string_view text, const std::string& name);

// Throws UserError as well if the file cannot be read.
std::vector<WarmupRequest> read_warmup_requests(const std::string& path);

// A path for the request line: what is wrong with it, or "".
std::string_view wrong_with_target(std::string_view target);

} // namespace kvmserver::cli
