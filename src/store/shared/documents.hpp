// What the entries of a cluster's index hold:
//
//     functions/NAME     JSON: the function's record, the records of its versions, its history
//     routes/HOST/PATH   the name of the function that has the route
//     gc/running         is there while a daemon removes objects from the bucket
//     gc/generation      changes before it does
//     settings           the record of shared secrets, tokens and certificates
//     nodes/NODE         JSON: the daemon of this store, while it runs (cluster/nodes.hpp)
//     drained/NODE       JSON: the node shall get no more requests (the same)
//
// Records hold ids, which are each store's own: who reads them puts in its own ones. All values but those of routes and
// of gc may hold secrets.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/store/functions/event.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/snapshots/snapshot_record.hpp"

namespace kvmserver::store {

inline constexpr std::string_view kSharedFunctions = "functions/", kSharedRoutes = "routes/";
inline constexpr std::string_view kSharedGc = "gc/", kSharedNodes = "nodes/", kSharedDrained = "drained/";
inline constexpr const char* kSharedSettings = "settings";
inline constexpr const char* kGcRunning = "gc/running";
inline constexpr const char* kGcGeneration = "gc/generation";

std::string shared_key(std::string_view function);
std::string shared_key(const Route& route);
// Whether the entry's value is no secret: others may compare it.
bool is_plain(std::string_view key);
// Whether stores copy it. Later versions may have entries that this one does not know.
bool is_copied(std::string_view key);

struct SharedVersion {
    VersionRecord record;
    Digest pieces; // digest_of_pieces() of its snapshot, whose record is in the bucket
};

struct SharedFunction {
    FunctionRecord record;
    std::vector<SharedVersion> versions; // by number
    std::vector<Event> events;           // newest first
};

// SHA-256 over a snapshot's list of chunks: what the bucket says of a snapshot is compared with it.
Digest digest_of_pieces(const SnapshotRecord& snapshot);

SharedFunction load_shared_function(const Database& database, std::int64_t id);
std::string to_text(const SharedFunction& function);
SharedFunction shared_function_from_text(std::string_view text); // throws RecordError

} // namespace kvmserver::store
