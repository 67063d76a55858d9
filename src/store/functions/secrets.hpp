// Secrets: values that functions get and that are never shown to people.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/store/functions/function_change.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct SecretInfo {
    std::string name;
    std::int64_t changed = 0;
    // for a shared secret: patterns of tenants' functions that may have it (tenant.hpp)
    std::vector<std::string> grants;
};

// Secrets of one function, or (function "") shared ones that any function may request in its manifest.
class Secrets {
public:
    // The function's history says that `author` made the changes. Who only reads needs none.
    explicit Secrets(Store& store, Author author = {}) : store_(store), author_(std::move(author)) {}
    // Sets a secret, or unsets it without a value (NotFound if it is not set). `if_match` is a condition on the
    // function (StaleEtag); shared secrets have no etag (BadValue).
    void set(const std::string& function, const std::string& name, const std::optional<std::string>& value,
             const IfMatch& if_match = {});
    // Sets the value, the patterns of `grants`, or both, of a shared secret. Without a value, the secret must exist.
    void set_for_all(const std::string& name, const std::optional<std::string>& value,
                     const std::optional<std::vector<std::string>>& grants);
    std::vector<SecretInfo> list(const std::string& function); // sorted by name
    // For machines only: the shared secrets, overridden by those of the function, if it exists. For a version that a
    // tenant deployed (VersionRecord::tenant), only those shared secrets that are granted to the function.
    std::map<std::string, std::string> values(const std::string& function, const std::string& tenant);
    // Names of secrets that a tenant's version of the function may request.
    std::set<std::string> within_reach(const std::string& function);

private:
    std::map<std::string, std::string> read(const std::string& function, bool granted_only);
    Store& store_;
    Author author_;
};

} // namespace kvmserver::store
