#include "src/store/functions/changes.hpp"

namespace kvmserver::store {

void note_change(Database& database, std::string_view function) {
    database.prepare("INSERT INTO change (function) VALUES (?)").bind(function).run();
    database.prepare("DELETE FROM change WHERE id <= ?")
        .bind(database.last_id() - static_cast<std::int64_t>(kMaxChanges))
        .run();
}

Changes changes_since(const Database& database, std::int64_t seen) {
    Changes changes;
    changes.last = database.number("SELECT coalesce(max(id), 0) FROM change");
    // Some after `seen` may have been deleted. An index that was made anew begins with 1 again.
    changes.all = changes.last < seen || changes.last - seen > static_cast<std::int64_t>(kMaxChanges);
    if (changes.all)
        return changes;
    auto rows = database.prepare("SELECT function FROM change WHERE id > ?");
    for (rows.bind(seen); rows.step();) {
        std::string function = rows.text(0);
        changes.all |= function.empty();
        changes.functions.insert(std::move(function));
    }
    return changes;
}

} // namespace kvmserver::store
