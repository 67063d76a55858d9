// A function and its versions as the store keeps them, both as rows and as records.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/digest.hpp"
#include "src/store/functions/moved.hpp"
#include "src/store/functions/names.hpp"
#include "src/store/index/database.hpp"

namespace kvmserver::store {

enum class VersionState { pending, ready, failed };
const char* name_of(VersionState state);

struct Live { // a version that gets requests, and its share
    std::uint64_t version = 0;
    unsigned percent = 0;
    bool operator==(const Live&) const = default;
};

struct SecretValue {
    std::string value;
    std::int64_t changed = 0;
    bool operator==(const SecretValue&) const = default;
};

struct FunctionRecord {
    std::int64_t id = 0;
    std::string name;
    std::uint64_t revision = 0, last_version = 0;
    std::int64_t created = 0, changed = 0;
    std::string tag = "0";  // random; "0": created before tags existed
    std::vector<Live> live; // sorted by version
    std::vector<Route> routes;
    std::map<std::string, std::string> env;
    std::map<std::string, SecretValue> secrets;
    std::optional<Moved> moved = {}; // nothing: it is served here
    bool operator==(const FunctionRecord&) const = default;
    // Changes with every change of the function. A later function of the same name never has the same one.
    std::string etag() const;
    void check() const; // throws BadValue if a value breaks the rules
};

struct VersionRecord {
    std::int64_t function = 0; // the function's id
    std::string name;          // the function's name
    std::uint64_t number = 0;
    Digest snapshot;
    std::string manifest; // JSON
    std::int64_t created = 0;
    VersionState state = VersionState::ready;
    std::string tenant;   // prefix of the token that deployed it; "": the operator's
    std::string ceilings; // JSON: ceilings of the deployer; "": none
    bool operator==(const VersionRecord&) const = default;
    void check() const;
};

std::string live_text(const std::vector<Live>& live); // "v4", "v3:10%,v4:90%", "none"
void check_traffic(const std::vector<Live>& live);    // must be empty or add up to 100 percent; throws BadValue

std::string function_folder(std::string_view name);
std::string function_record_path(std::string_view name);
std::string version_record_path(std::string_view name, std::uint64_t number);
std::string to_record(const FunctionRecord& function);
std::string to_record(const VersionRecord& version);
FunctionRecord function_from_record(std::string_view file); // throws RecordError
VersionRecord version_from_record(std::string_view file);   // throws RecordError

std::int64_t function_id(const Database& database, std::string_view name); // throws NotFound
FunctionRecord load_function(const Database& database, std::int64_t id);   // throws IndexDamaged
VersionRecord load_version(const Database& database, std::int64_t function,
                           std::uint64_t number); // throws NotFound
std::vector<std::uint64_t> version_numbers(const Database& database, std::int64_t function);

// Call these within a transaction. Rows that they refer to must exist (version: function and snapshot; live: versions).
void insert_function_row(Database& database, const FunctionRecord& function);
void insert_function_details(Database& database,
                             const FunctionRecord& function); // traffic, routes, env, secrets
void insert_version(Database& database, const VersionRecord& version);

} // namespace kvmserver::store
