// Settings that belong to no function: shared secrets, tokens, and certificates. The record store.json has the same
// content as the rows.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/digest.hpp"
#include "src/store/functions/certificates.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/index/database.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct TokenRow {
    std::int64_t id = 0;
    std::string name;
    Digest hash; // SHA-256 of the token
    unsigned scopes = 0;
    std::string prefix; // of the functions for which the token is valid
    std::int64_t created = 0;
    std::optional<std::int64_t> expires;
    std::vector<std::string> routes;
    std::string ceilings; // JSON; "": none
    bool operator==(const TokenRow&) const = default;
};

struct Settings {
    std::map<std::string, SecretValue> secrets;
    std::map<std::string, std::vector<std::string>> grants; // by secret; secrets without grants are left out
    std::vector<TokenRow> tokens;
    std::vector<Certificate> certificates; // by id
    bool operator==(const Settings&) const = default;
};

std::string to_record(const Settings& settings);
Settings settings_from_record(std::string_view file); // throws RecordError
Settings load_settings(const Database& database);
void insert_settings(Database& database, const Settings& settings);

// One change of the settings, rows and record together: all or nothing.
// The constructor takes naming(), the index and a write transaction.
class SettingsChange {
public:
    explicit SettingsChange(Store& store);
    ~SettingsChange(); // rolls back what was not committed
    SettingsChange(const SettingsChange&) = delete;
    SettingsChange& operator=(const SettingsChange&) = delete;
    Database& database() { return *index_; }
    void commit();

private:
    Store& store_;
    FileLock naming_;
    Store::Index index_;
    Transaction transaction_;
    bool file_touched_ = false, done_ = false;
};

// Makes store.json match the index. Returns whether it had to be rewritten.
bool align_settings(Folder& folder, const Database& database);

} // namespace kvmserver::store
