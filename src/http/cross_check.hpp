// A second opinion on every head, from Boost.Beast's parser. A head is refused if Beast refuses it or frames it
// differently. So a mistake in our own scanner alone does not let a request through.
#pragma once
#include <string_view>

#include "src/http/fault.hpp"
#include "src/http/fields.hpp"

namespace kvmserver::http {

Fault agree_on_request(std::string_view head, const Framing& ours);
Fault agree_on_reply(std::string_view head, const Framing& ours, bool head_request);

} // namespace kvmserver::http
