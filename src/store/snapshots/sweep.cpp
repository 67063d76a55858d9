#include "src/store/snapshots/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/store/snapshots/chunk_files.hpp"
#include "src/store/snapshots/uploads.hpp"

namespace kvmserver::store {

Leftovers find_leftovers(const Folder& folder, const Database& database, const Marks& marks) {
    Leftovers leftovers;
    const auto add = [&](const std::string& path) {
        leftovers.bytes += folder.size_of(path).value_or(0);
        for (const std::string& file : folder.list(path))
            leftovers.bytes += folder.size_of(fmt::format("{}/{}", path, file)).value_or(0);
        leftovers.paths.push_back(path);
    };
    for (const std::string& name : folder.list(kTmp))
        if (std::find(marks.imports.begin(), marks.imports.end(), name) == marks.imports.end())
            add(fmt::format("{}/{}", kTmp, name));
    for (const std::string& name : marks.orphans)
        add(fmt::format("{}/{}", kLocks, name));
    for (const std::string& name : folder.list(kUploads))
        if (!database.prepare("SELECT 1 FROM upload WHERE id = ?").bind(name).step())
            add(upload_path(name));
    return leftovers;
}

void remove(Folder& folder, const Leftovers& leftovers) {
    for (const std::string& path : leftovers.paths)
        folder.remove_tree(path);
}

std::vector<Digest> known_chunks(const Database& database) {
    std::vector<Digest> known;
    auto rows = database.prepare("SELECT digest FROM chunk ORDER BY digest");
    while (rows.step())
        known.push_back(rows.digest(0));
    return known;
}

std::vector<Digest> chunk_files_but(const Folder& folder, const std::vector<Digest>& known) {
    std::vector<Digest> others;
    for (const std::string& two : folder.list(kChunks))
        for (const std::string& name : folder.list(fmt::format("{}/{}", kChunks, two)))
            if (const auto digest = chunk_named(two, name))
                if (!std::binary_search(known.begin(), known.end(), *digest))
                    others.push_back(*digest);
    return others;
}

Removed remove_chunks(Store& store, const std::vector<Digest>& candidates) {
    constexpr std::size_t kBatch = 256;
    Removed removed;
    for (std::size_t begin = 0; begin < candidates.size(); begin += kBatch) {
        const FileLock sweeping = store.sweeping();
        auto index = store.index();
        for (std::size_t i = begin; i < std::min(begin + kBatch, candidates.size()); ++i) {
            const Digest& digest = candidates[i];
            if (index->prepare("SELECT 1 FROM chunk WHERE digest = ?").bind(digest).step())
                continue; // a deploy has named it meanwhile
            const std::uint64_t size = store.folder().size_of(chunk_path(digest)).value_or(0);
            if (!store.folder().remove(chunk_path(digest)))
                continue;
            ++removed.chunks;
            removed.bytes += size;
        }
    }
    return removed;
}

} // namespace kvmserver::store
