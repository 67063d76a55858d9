// Values that go into functions and never come out to people.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/store/functions/function_change.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct SecretInfo {
    std::string name;
    std::int64_t changed = 0;
    std::vector<std::string> grants; // of one for all: functions of tenants that may have it (tenant.hpp)
};

// Of one function, or (function "") those that any function may ask for in its manifest.
class Secrets {
public:
    explicit Secrets(Store& store) : store_(store) {}
    // A value, or nothing to unset it (NotFound when there is none). A condition is on the function
    // (StaleEtag); those for all have nothing that it could be compared with (BadValue).
    void set(const std::string& function, const std::string& name, const std::optional<std::string>& value,
             const IfMatch& if_match = {});
    // A value, patterns of names for `grants`, or both, of one for all. Without a value there must be one.
    void set_for_all(const std::string& name, const std::optional<std::string>& value,
                     const std::optional<std::vector<std::string>>& grants);
    std::vector<SecretInfo> list(const std::string& function); // by name
    // For the machine only: those for all, and over them the function's own, if there is such a function. A version
    // that a tenant deployed (VersionRecord::tenant) gets of those for all only what is granted to its function.
    std::map<std::string, std::string> values(const std::string& function, const std::string& tenant);
    // Names of those that a tenant's version of the function may ask for.
    std::set<std::string> within_reach(const std::string& function);

private:
    std::map<std::string, std::string> read(const std::string& function, bool granted_only);
    Store& store_;
};

} // namespace kvmserver::store
