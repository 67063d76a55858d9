// The description of the API against the code that it describes.
#include <set>

#include "src/admin/openapi.hpp"
#include "src/admin/table.hpp"
#include "src/ceilings/keys.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;
using namespace kvmserver::admin;

TEST_CASE("each endpoint has an operation with an id of its own and a reply") {
    const nlohmann::ordered_json document = openapi_document();
    std::set<std::string> ids;
    for (const Endpoint& endpoint : endpoints()) {
        std::string method(endpoint.method);
        for (char& c : method)
            c = static_cast<char>(c - 'A' + 'a');
        CAPTURE(endpoint.method, endpoint.path);
        const auto& operation = document.at("paths").at(std::string(endpoint.path)).at(method);
        CHECK(ids.insert(operation.at("operationId")).second);
        CHECK(!operation.at("operationId").get<std::string>().empty());
        CHECK(endpoint.interface.replies[0].status != 0);
    }
}

TEST_CASE("the description of ceilings has the keys that are read") {
    const nlohmann::ordered_json document = openapi_document();
    std::set<std::string> keys, described;
    each_key([&](const char* name, auto, auto) { keys.insert(name); });
    for (const auto& [name, value] : document.at("components").at("schemas").at("Ceilings").at("properties").items())
        described.insert(name);
    CHECK(keys == described);
}
