#include "src/store/index/rebuild.hpp"

#include <fmt/format.h>

#include "src/store/snapshots/restore.hpp"

namespace kvmserver::store {

void rebuild_index(Folder& folder, IndexFile& file, Findings& findings) {
    const std::string path = file.begin_new();
    {
        Database database = file.open_new(path);
        Transaction transaction(database);
        Restorer restorer(folder, database, findings);
        restorer.restore_all();
        const auto functions = database.number("SELECT count(*) FROM function");
        const auto snapshots = database.number("SELECT count(*) FROM snapshot");
        transaction.commit();
        for (const std::string& name : restorer.reduced()) {
            folder.put(function_record_path(name), to_record(load_function(database, function_id(database, name))));
            folder.sync_folder(function_folder(name));
        }
        if (functions > 0 || snapshots > 0)
            findings.push_back(
                {Finding::Kind::repaired, fmt::format("{}: made anew from the records of {} functions and {} snapshots",
                                                      folder.full(kIndex), functions, snapshots)});
    }
    file.publish_new(path);
}

} // namespace kvmserver::store
