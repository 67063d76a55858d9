#include "src/store/rebuild.hpp"

#include <fmt/format.h>

#include "src/store/restore.hpp"

namespace kvmserver::store {

void rebuild_index(Folder& folder, IndexFile& file, Findings& findings) {
    const std::string path = file.begin_new();
    {
        Database database = file.open_new(path);
        Transaction transaction(database);
        Restorer(folder, database, findings).restore_all();
        const auto functions = database.number("SELECT count(*) FROM function");
        const auto snapshots = database.number("SELECT count(*) FROM snapshot");
        transaction.commit();
        if (functions > 0 || snapshots > 0)
            findings.push_back({Finding::Kind::repaired, fmt::format("{}: made anew from the records of {} functions and {} snapshots",
                                                                     folder.full(kIndex), functions, snapshots)});
    }
    file.publish_new(path);
}

void rebuild_index(Folder& folder, IndexFile& file, std::vector<std::string>& notes) {
    Findings findings;
    rebuild_index(folder, file, findings);
    for (Finding& finding : findings)
        notes.push_back(std::move(finding.line));
}

} // namespace kvmserver::store
