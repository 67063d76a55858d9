#include "src/store/snapshots/restore.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "src/store/errors.hpp"
#include "src/store/files/record.hpp"
#include "src/store/functions/settings_record.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

std::string read_record(const Folder& folder, const std::string& path) {
    auto text = folder.read(path, kMaxRecordBytes);
    if (!text)
        throw RecordError("is missing");
    return std::move(*text);
}

bool Restorer::broken(const std::string& path, const std::string& why) {
    findings_.push_back({Finding::Kind::broken, fmt::format("{}: {}", folder_.full(path), why)});
    return false;
}

// Runs `action` in a savepoint. A failure becomes a finding and leaves no rows behind.
template <class Action>
bool Restorer::attempt(const std::string& path, const Action& action) {
    database_.execute("SAVEPOINT attempt");
    bool done = false;
    try {
        done = action();
    } catch (const RecordError& e) {
        broken(path, e.what());
    } catch (const UserError& e) {
        broken(path, std::string("contradicts what else there is: ") + e.what());
    } catch (const HostError& e) {
        broken(path, e.what());
    }
    database_.execute(done ? "RELEASE attempt" : "ROLLBACK TO attempt; RELEASE attempt");
    return done;
}

bool Restorer::restore_snapshot(const std::string& file) {
    const std::string path = fmt::format("{}/{}", kSnapshots, file);
    return attempt(path, [&] {
        const SnapshotRecord snapshot = snapshot_from_record(read_record(folder_, path));
        if (snapshot_record_path(snapshot.digest) != path)
            throw RecordError("is the record of another snapshot");
        if (has_snapshot(database_, snapshot.digest))
            return true;
        const bool bucket = folder_.size_of(kBucket).has_value();
        for (const ChunkRef& chunk : snapshot.pieces)
            if (!has_chunk(folder_, chunk.digest, chunk.length) && !bucket)
                throw RecordError(fmt::format("its chunk {} is missing: deploy it again", chunk.digest.hex()));
        insert_snapshot(database_, snapshot);
        for (const ChunkRef& chunk : snapshot.pieces) // only those that the bucket had were removed here
            if (!has_chunk(folder_, chunk.digest, chunk.length))
                note_in_bucket(database_, chunk.digest);
        return true;
    });
}

bool Restorer::restore_version(const std::string& name, const std::string& file, std::int64_t function) {
    const std::string path = function_folder(name) + "/" + file;
    return attempt(path, [&] {
        const VersionRecord version = version_from_record(read_record(folder_, path));
        if (version_record_path(version.name, version.number) != path || version.function != function)
            throw RecordError("is the record of another version");
        if (!has_snapshot(database_, version.snapshot))
            throw RecordError(fmt::format("its snapshot {} is lost: deploy it again", version.snapshot.hex()));
        insert_version(database_, version);
        return true;
    });
}

// Reads function.json; if that is damaged or missing, collects what the versions' records say.
FunctionRecord Restorer::read_function(const std::string& name) {
    const std::string path = function_record_path(name);
    FunctionRecord function;
    try {
        function = function_from_record(read_record(folder_, path));
        if (function.name != name)
            throw RecordError("is the record of another function");
        return function;
    } catch (const RecordError& e) {
        broken(path, fmt::format("{}: routes, environment and secrets of {} are lost, and none of its "
                                 "versions is live: set them again, "
                                 "and `kvmserver rollback {} VERSION`",
                                 e.what(), name, name));
    }
    function = {};
    for (const std::string& file : folder_.list(function_folder(name))) {
        try {
            const VersionRecord version = version_from_record(read_record(folder_, function_folder(name) + "/" + file));
            function.id = version.function;
            function.last_version = std::max(function.last_version, version.number);
            function.created = function.changed = version.created;
        } catch (const RecordError&) { // reported by restore_version()
        }
    }
    function.name = name;
    function.revision = 1u << 20; // no earlier etag may match
    if (function.id == 0)
        throw RecordError("nothing is left of the function: deploy it again");
    return function;
}

// Restores traffic and routes as far as possible; reports the rest.
void Restorer::restore_traffic_and_routes(FunctionRecord& function) {
    const std::string path = function_record_path(function.name);
    const auto numbers = version_numbers(database_, function.id);
    const bool all_there = std::all_of(function.live.begin(), function.live.end(), [&](const Live& part) {
        return std::binary_search(numbers.begin(), numbers.end(), part.version);
    });
    if (!all_there) {
        broken(path, fmt::format("a live version of {} is lost, so none is live: deploy it again or "
                                 "`kvmserver rollback {} VERSION`",
                                 function.name, function.name));
        function.live.clear();
    }
    const std::size_t routes = function.routes.size();
    std::erase_if(function.routes, [&](const Route& route) {
        auto owner = database_.prepare("SELECT f.name FROM route r JOIN function f ON f.id = r.function "
                                       "WHERE r.host = ? AND r.path = ?");
        if (!owner.bind(route.host).bind(route.path).step())
            return false;
        broken(path, fmt::format("route {} belongs to {} now", route.text(), owner.text(0)));
        return true;
    });
    insert_function_details(database_, function);
    if (all_there && routes == function.routes.size())
        return;
    // The function differs from what holders of its etag saw.
    database_.prepare("UPDATE function SET revision = revision + 2 WHERE id = ?").bind(function.id).run();
    reduced_.push_back(function.name);
}

bool Restorer::restore_function(const std::string& name) {
    return attempt(function_folder(name), [&] {
        if (!is_function_name(name))
            throw RecordError("is not a function's name");
        FunctionRecord function = read_function(name);
        auto same_id = database_.prepare("SELECT name FROM function WHERE id = ?");
        if (same_id.bind(function.id).step())
            throw RecordError(
                fmt::format("has the number of function {}: one of them was copied by hand", same_id.text(0)));
        insert_function_row(database_, function);
        for (const std::string& file : folder_.list(function_folder(name))) {
            if (file == "function.json")
                continue;
            // Written by a deploy whose transaction was not committed.
            std::uint64_t number = 0;
            const auto [end, error] = std::from_chars(file.data(), file.data() + file.size(), number);
            if (error == std::errc() && number > function.last_version)
                continue;
            restore_version(name, file, function.id);
        }
        restore_traffic_and_routes(function);
        return true;
    });
}

void Restorer::restore_settings() {
    if (!folder_.size_of(kSettings))
        return;
    attempt(kSettings, [&] {
        insert_settings(database_, settings_from_record(read_record(folder_, kSettings)));
        return true;
    });
}

void Restorer::restore_all() {
    for (const std::string& file : folder_.list(kSnapshots))
        restore_snapshot(file);
    for (const std::string& name : folder_.list(kFunctions))
        restore_function(name);
    restore_settings();
}

} // namespace kvmserver::store
