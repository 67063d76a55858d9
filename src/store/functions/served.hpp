// What a daemon needs to know of functions to serve them, for one of them or for very many at once.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/store/functions/changes.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct ServedVersion {
    std::uint64_t number = 0;
    unsigned percent = 0;
    Digest snapshot;
    std::string manifest; // JSON
    std::string tenant;   // VersionRecord::tenant
    std::string ceilings; // JSON: ceilings of the deployer; "": none
};

struct ServedFunction {
    std::string name;
    std::int64_t created = 0;
    std::vector<ServedVersion> live; // sorted by number
    std::vector<Route> routes;       // sorted
    std::map<std::string, std::string> env, secrets;
    std::optional<Moved> moved = {}; // another daemon serves it
};

struct SharedSecret { // one that any function may ask for
    std::string value;
    std::vector<std::string> grants; // patterns of tenants' functions that may have it (tenant.hpp)
};

// Reads in one transaction, so that all answers are of the same moment. Occupies the store's connection while it
// exists. Throws IndexDamaged, HostError.
class Served {
public:
    explicit Served(Store& store);

    Changes changes_since(std::int64_t seen) const { return store::changes_since(*index_, seen); }
    std::vector<std::string> names() const;
    std::map<std::string, SharedSecret> shared_secrets() const;
    // All functions, in no particular order: a query for each kind of rows, not one for each function.
    void each(const std::function<void(const ServedFunction&)>& take) const;
    std::optional<ServedFunction> find(const std::string& name) const;

private:
    Store::Index index_;
    Transaction transaction_;
};

// The secrets that this version of the function may have: the shared ones, overridden by its own. A version that a
// tenant deployed has only those shared ones that are granted to the function.
std::map<std::string, std::string> secrets_of(const ServedFunction& function, const ServedVersion& version,
                                              const std::map<std::string, SharedSecret>& shared);

} // namespace kvmserver::store
