#include "src/store/shared/drained.hpp"

#include "src/store/shared/copied.hpp"
#include "src/store/shared/documents.hpp"

namespace kvmserver::store {

bool is_drained(const Database& database, const std::string& node) {
    return database.prepare("SELECT 1 FROM drained WHERE node = ?").bind(node).step();
}

void copy_drained(Database& database, const std::string& key, std::int64_t revision, bool there) {
    Transaction transaction(database);
    if (there ? is_older(database, key, revision) : copied(database, key).revision > revision)
        return;
    const std::string node = key.substr(kSharedDrained.size());
    database.prepare("DELETE FROM drained WHERE node = ?").bind(node).run();
    if (there)
        database.prepare("INSERT INTO drained (node) VALUES (?)").bind(node).run();
    note_copied(database, key, {revision, !there});
    transaction.commit();
}

} // namespace kvmserver::store
