#include "src/store/functions/settings_record.hpp"

#include "src/store/files/record_json.hpp"
#include "src/store/functions/tenant.hpp"
#include "src/store/shared/copy.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/membership.hpp"
#include "src/store/shared/publish.hpp"

namespace kvmserver::store {

std::string to_record(const Settings& settings) {
    Json secrets = Json::object(), tokens = Json::array();
    for (const auto& [name, secret] : settings.secrets)
        secrets[name] = Json::array({secret.value, secret.changed});
    for (const TokenRow& token : settings.tokens) {
        tokens.push_back({{"id", token.id},
                          {"name", token.name},
                          {"hash", token.hash.hex()},
                          {"scopes", token.scopes},
                          {"prefix", token.prefix},
                          {"created", token.created},
                          {"expires", token.expires ? Json(*token.expires) : Json()}});
        if (!token.routes.empty())
            tokens.back()["routes"] = token.routes;
        if (!token.ceilings.empty()) // older records have no such field either
            tokens.back()["ceilings"] = token.ceilings;
    }
    Json all{{"secrets", std::move(secrets)}, {"tokens", std::move(tokens)}};
    if (!settings.grants.empty())
        all["grants"] = settings.grants;
    for (const Certificate& certificate : settings.certificates)
        all["certificates"].push_back({{"name", certificate.name},
                                       {"chain", certificate.chain},
                                       {"key", certificate.key},
                                       {"changed", certificate.changed}});
    return seal_record("store", all.dump());
}

Settings settings_from_record(std::string_view file) {
    const Json json = parse_record(open_record("store", file));
    Settings settings;
    for (const auto& [name, value] : field(json, "secrets").items())
        settings.secrets[name] = {text(row(value, 2, "secrets")[0], "secrets"),
                                  static_cast<std::int64_t>(natural(value[1], "secrets"))};
    if (json.contains("grants")) // since schema 2, and only if there are any
        for (const auto& [name, patterns] : field(json, "grants").items())
            settings.grants[name] = texts(patterns, "grants");
    for (const Json& token : list_field(json, "tokens")) {
        TokenRow read{time_field(token, "id"),
                      text_field(token, "name"),
                      digest_field(token, "hash"),
                      static_cast<unsigned>(natural_field(token, "scopes") & 15),
                      text_field(token, "prefix"),
                      time_field(token, "created"),
                      {},
                      token.contains("routes") ? texts(field(token, "routes"), "routes") : std::vector<std::string>(),
                      token.contains("ceilings") ? text_field(token, "ceilings") : ""};
        if (!field(token, "expires").is_null())
            read.expires = time_field(token, "expires");
        settings.tokens.push_back(std::move(read));
    }
    if (json.contains("certificates")) // since schema 7, and only if there are any
        for (const Json& certificate : list_field(json, "certificates"))
            settings.certificates.push_back({text_field(certificate, "name"), text_field(certificate, "chain"),
                                             text_field(certificate, "key"), time_field(certificate, "changed")});
    return settings;
}

Settings load_settings(const Database& database) {
    Settings settings;
    auto secrets = database.prepare("SELECT name, value, changed, grants FROM secret WHERE function IS NULL");
    while (secrets.step()) {
        settings.secrets[secrets.text(0)] = {secrets.text(1), secrets.integer(2)};
        if (auto patterns = split_words(secrets.text(3)); !patterns.empty())
            settings.grants[secrets.text(0)] = std::move(patterns);
    }
    auto tokens = database.prepare(
        "SELECT id, name, hash, scopes, prefix, created, expires, routes, ceilings FROM token ORDER BY id");
    while (tokens.step()) {
        settings.tokens.push_back({tokens.integer(0),
                                   tokens.text(1),
                                   tokens.digest(2),
                                   static_cast<unsigned>(tokens.natural(3)),
                                   tokens.text(4),
                                   tokens.integer(5),
                                   {},
                                   split_words(tokens.text(7)),
                                   tokens.text(8)});
        if (!tokens.is_null(6))
            settings.tokens.back().expires = tokens.integer(6);
    }
    auto certificates = database.prepare("SELECT name, chain, private_key, changed FROM certificate ORDER BY id");
    while (certificates.step())
        settings.certificates.push_back(
            {certificates.text(0), certificates.text(1), certificates.text(2), certificates.integer(3)});
    return settings;
}

void insert_settings(Database& database, const Settings& settings) {
    auto secret =
        database.prepare("INSERT INTO secret (function, name, value, changed, grants) VALUES (NULL, ?, ?, ?, ?)");
    for (const auto& [name, value] : settings.secrets) {
        const auto grants = settings.grants.find(name);
        secret.bind(name)
            .bind(value.value)
            .bind(value.changed)
            .bind(grants == settings.grants.end() ? "" : joined_words(grants->second))
            .run();
    }
    auto token =
        database.prepare("INSERT INTO token (id, name, hash, scopes, prefix, created, expires, routes, ceilings) "
                         "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
    for (const TokenRow& row : settings.tokens)
        token.bind(row.id)
            .bind(row.name)
            .bind(row.hash)
            .bind(std::int64_t{row.scopes})
            .bind(row.prefix)
            .bind(row.created)
            .bind(row.expires)
            .bind(joined_words(row.routes))
            .bind(row.ceilings)
            .run();
    auto certificate =
        database.prepare("INSERT INTO certificate (name, chain, private_key, changed) VALUES (?, ?, ?, ?)");
    for (const Certificate& row : settings.certificates)
        certificate.bind(row.name).bind(row.chain).bind(row.key).bind(row.changed).run();
}

namespace {

// In a cluster, the settings as all daemons see them now.
Store& with_newest_settings(Store& store) {
    require_index_of_cluster(store);
    catch_up(store, kSharedSettings);
    return store;
}

} // namespace

SettingsChange::SettingsChange(Store& store)
    : store_(with_newest_settings(store)), naming_(store.naming()), index_(store.index()), transaction_(*index_) {}

void SettingsChange::commit() {
    file_touched_ = true;
    align_settings(store_.folder(), *index_);
    publish_settings(store_, *index_);
    transaction_.commit();
    done_ = true;
}

SettingsChange::~SettingsChange() {
    if (done_)
        return;
    transaction_.roll_back();
    if (!file_touched_)
        return;
    try {
        align_settings(store_.folder(), *index_);
    } catch (...) { // verify repairs this later
    }
}

bool align_settings(Folder& folder, const Database& database) {
    const Settings settings = load_settings(database);
    const std::string text = to_record(settings);
    const auto size = folder.size_of(kSettings);
    if (size ? size == text.size() && folder.read(kSettings, kMaxRecordBytes) == text : settings == Settings{})
        return false;
    folder.put(kSettings, text);
    folder.sync_folder(".");
    return true;
}

} // namespace kvmserver::store
