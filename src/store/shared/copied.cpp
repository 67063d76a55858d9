#include "src/store/shared/copied.hpp"

namespace kvmserver::store {

namespace {

// Whose revision is that up to which all is copied. No entry has it.
constexpr const char* kFollowed = "";

} // namespace

Copied copied(const Database& database, const std::string& key) {
    auto found = database.prepare("SELECT revision, gone FROM shared WHERE key = ?");
    return found.bind(key).step() ? Copied{found.integer(0), found.integer(1) != 0} : Copied{};
}

bool is_older(const Database& database, const std::string& key, std::int64_t revision) {
    const Copied here = copied(database, key);
    return revision <= (here.revision != 0 ? here : copied(database, kFollowed)).revision;
}

std::map<std::string, Copied> all_copied(const Database& database) {
    std::map<std::string, Copied> all;
    auto rows = database.prepare("SELECT key, revision, gone FROM shared");
    while (rows.step())
        all.emplace(rows.text(0), Copied{rows.integer(1), rows.integer(2) != 0});
    return all;
}

void note_copied(Database& database, const std::string& key, const Copied& state) {
    database.prepare("INSERT OR REPLACE INTO shared (key, revision, gone) VALUES (?, ?, ?)")
        .bind(key)
        .bind(state.revision)
        .bind(std::int64_t{state.gone})
        .run();
}

void note_followed(Database& database, std::int64_t revision) {
    note_copied(database, kFollowed, {revision, false});
    database.prepare("DELETE FROM shared WHERE gone = 1 AND revision <= ?").bind(revision).run();
}

} // namespace kvmserver::store
