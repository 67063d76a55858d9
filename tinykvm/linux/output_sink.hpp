// Where a program's output goes in place of the process's stdout and stderr.
#pragma once
#include <functional>
#include <string_view>

namespace tinykvm {

// `stream`: 1 for stdout, 2 for stderr. Bytes as the program writes them, not by lines.
using OutputSink = std::function<void(int stream, std::string_view bytes)>;

} // namespace tinykvm
