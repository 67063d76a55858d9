// The API's description: OpenAPI 3.1.
#pragma once
#include <nlohmann/json.hpp>

namespace kvmserver::admin {

// Puts the table of endpoints and openapi/*.json together. Throws std::logic_error if they disagree.
nlohmann::ordered_json openapi_document();

} // namespace kvmserver::admin
