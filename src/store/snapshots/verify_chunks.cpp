// The part of verify that checks chunks.
#include <fmt/format.h>

#include <algorithm>

#include "src/store/errors.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "src/store/snapshots/sweep.hpp"
#include "src/store/snapshots/verify.hpp"

namespace kvmserver::store {

namespace {

struct ChunkRow {
    std::int64_t id = 0;
    Digest digest;
    std::uint64_t size = 0;
    bool in_bucket = false;
};

std::vector<ChunkRow> chunk_rows(const Database& database) {
    std::vector<ChunkRow> chunks;
    auto rows = database.prepare("SELECT id, digest, size, in_bucket FROM chunk ORDER BY digest");
    while (rows.step())
        chunks.push_back({rows.integer(0), rows.digest(1), rows.natural(2), rows.integer(3) != 0});
    return chunks;
}

enum class Look { good, missing, altered };

Look look_at(const Folder& folder, const ChunkRow& chunk, bool read) {
    const std::string path = chunk_path(chunk.digest);
    const auto file = folder.open_read(path);
    if (!file)
        return chunk.in_bucket ? Look::good : Look::missing; // fetched when it is needed
    if (folder.size_of(path) != chunk.size)
        return Look::altered;
    return !read || sha256_of_file(file.get(), folder.full(path)) == chunk.digest ? Look::good : Look::altered;
}

// The versions that need a chunk: "hello v1, hello v2"; "" for none.
std::string users_of(const Database& database, std::int64_t chunk) {
    constexpr int kMax = 10;
    std::string users;
    auto rows =
        database.prepare("SELECT DISTINCT f.name, v.number FROM piece p JOIN version v ON v.snapshot = p.snapshot "
                         "JOIN function f ON f.id = v.function WHERE p.chunk = ? ORDER BY f.name, v.number");
    rows.bind(chunk);
    for (int n = 0; rows.step(); ++n) {
        if (n == kMax)
            return users + ", ...";
        users += fmt::format("{}{} v{}", n ? ", " : "", rows.text(0), rows.natural(1));
    }
    return users;
}

// Handles a bad chunk: checks it again under the sweep lock, so that no deploy can repair it meanwhile.
void settle(Store& store, const ChunkRow& chunk, const VerifyOptions& options, Findings& findings) {
    Folder& folder = store.folder();
    const FileLock sweeping = store.sweeping();
    auto index = store.index();
    Transaction transaction(*index);
    if (!index->prepare("SELECT 1 FROM chunk WHERE id = ? AND digest = ?").bind(chunk.id).bind(chunk.digest).step())
        return; // a gc has removed it
    const Look look = look_at(folder, chunk, options.read_chunks);
    if (look == Look::good)
        return;
    const std::string path = chunk_path(chunk.digest);
    const std::string users = users_of(*index, chunk.id);
    const char* what = look == Look::missing ? "is missing" : "is altered";
    if (options.repair && look == Look::altered) { // moved away so that the next deploy can store it, but not destroyed
        folder.make_folder(kBroken);
        folder.rename(path, fmt::format("{}/{}", kBroken, chunk.digest.hex()));
    }
    if (look == Look::altered && chunk.in_bucket) {
        findings.push_back({options.repair ? Finding::Kind::repaired : Finding::Kind::repairable,
                            fmt::format("{}: {}; the bucket has it, too", folder.full(path), what)});
        return;
    }
    if (!users.empty()) {
        findings.push_back({Finding::Kind::broken,
                            fmt::format("{}: {}, and needed by {}: deploy that again from its .snap or its program",
                                        folder.full(path), what, users)});
        return;
    }
    if (options.repair) { // affects only snapshots that no version names
        index->prepare("DELETE FROM snapshot WHERE id IN (SELECT snapshot FROM piece WHERE chunk = ?)")
            .bind(chunk.id)
            .run();
        index->prepare("DELETE FROM chunk WHERE id = ?").bind(chunk.id).run();
        transaction.commit();
    }
    findings.push_back({options.repair ? Finding::Kind::repaired : Finding::Kind::repairable,
                        fmt::format("{}: {}; no function needs it", folder.full(path), what)});
}

void find_strangers(const Folder& folder, Findings& findings) {
    const auto note = [&](const std::string& path) {
        findings.push_back(
            {Finding::Kind::note, fmt::format("{}: is not part of a store; left alone", folder.full(path))});
    };
    for (const std::string& two : folder.list(kChunks)) {
        const std::string inner = fmt::format("{}/{}", kChunks, two);
        if (two.size() != 2 || folder.size_of(inner))
            note(inner);
        for (const std::string& name : folder.list(inner))
            if (!chunk_named(two, name))
                note(fmt::format("{}/{}", inner, name));
    }
}

} // namespace

void verify_chunks(Store& store, const VerifyOptions& options, VerifyReport& report) {
    const std::vector<ChunkRow> chunks = chunk_rows(*store.index());
    std::vector<Digest> known;
    for (const ChunkRow& chunk : chunks) { // without a lock, because this reads all chunks
        known.push_back(chunk.digest);
        if (look_at(store.folder(), chunk, options.read_chunks) != Look::good)
            settle(store, chunk, options, report.findings);
    }
    const std::vector<Digest> others = chunk_files_but(store.folder(), known);
    if (options.repair) {
        const Removed removed = remove_chunks(store, others);
        if (removed.chunks > 0)
            report.findings.push_back(
                {Finding::Kind::repaired, fmt::format("{}: {} chunks ({} bytes) that nothing names removed",
                                                      store.folder().full(kChunks), removed.chunks, removed.bytes)});
    } else if (!others.empty()) {
        // Not an error: they may belong to a running deploy.
        report.findings.push_back({Finding::Kind::note, fmt::format("{}: {} chunks that nothing names: gc removes them",
                                                                    store.folder().full(kChunks), others.size())});
    }
    find_strangers(store.folder(), report.findings);
}

} // namespace kvmserver::store
