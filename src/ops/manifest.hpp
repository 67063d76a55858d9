// Reads a manifest as the store keeps it: kvmserver.toml as one JSON object.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/common/listen_address.hpp"
#include "src/store/functions/names.hpp"

namespace kvmserver::ops {

// Values of [function], and `program` of [run]; empty if absent.
struct ManifestFacts {
    std::string program;
    std::optional<std::vector<store::Route>> routes;
    std::map<std::string, std::string> env;
    std::string health, after_restore; // paths
    bool tcp = false;                  // protocol = "tcp"
    bool tls_passthrough = false;      // protocol = "tls-passthrough"
    std::vector<ListenAddress> listen; // of a TCP function
    bool is_http() const { return !tcp && !tls_passthrough; }
};

// Throws BadValue for anything that is not a JSON object, and for values of a wrong type or that the store rejects.
ManifestFacts manifest_facts(const std::string& json);

} // namespace kvmserver::ops
