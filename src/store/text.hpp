// Bytes from the disk or the network as text.
#pragma once
#include <string>
#include <string_view>

namespace kvmserver::store {

bool is_utf8(std::string_view text);
// Fit for one line of a terminal: control characters and what is not UTF-8 become \xNN, long text is cut.
std::string printable(std::string_view text);

} // namespace kvmserver::store
