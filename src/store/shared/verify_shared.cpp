#include "src/store/shared/verify_shared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/store/errors.hpp"
#include "src/store/files/record.hpp"
#include "src/store/shared/copy.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/shared_index.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"
#include "src/store/snapshots/chunk_bucket.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

using Kind = Finding::Kind;

class Verifier {
public:
    Verifier(Store& store, bool repair) : store_(store), index_(*store.shared()), repair_(repair) {}

    VerifyReport run() {
        for (const std::string& failed : copy_all(store_).failed) // what cannot be copied, check() finds again
            copy_failures_.push_back(failed);
        std::vector<std::string> functions, routes;
        (void)index_.list([&](const SharedEntry& entry) {
            if (entry.key.starts_with(kSharedFunctions))
                functions.push_back(entry.key);
            else if (entry.key.starts_with(kSharedRoutes))
                routes.push_back(entry.key);
        });
        store_.bucket()->list([&](const Digest& chunk) { chunks_there_.insert(chunk); });
        for (const std::string& key : functions)
            settle(key, [this](const SharedEntry& entry) { return check_function(entry); });
        for (const std::string& key : routes)
            settle(key, [this](const SharedEntry& entry) { return check_route(entry); });
        if (report_.findings.empty()) // a failure that no entry explains
            for (const std::string& failed : copy_failures_)
                report_.findings.push_back({Kind::broken, failed});
        report_.snapshots = snapshots_.size();
        report_.chunks = chunks_.size();
        for (const auto& [digest, length] : chunks_)
            report_.bytes += length;
        return std::move(report_);
    }

private:
    // What was changed or deleted while it was looked at has no faults.
    template <class Check>
    void settle(const std::string& key, const Check& check) {
        constexpr int kChecks = 10; // deploys go on
        for (int i = 0; i < kChecks; ++i) {
            const auto entry = index_.get(key);
            if (!entry)
                return;
            Findings found = check(*entry);
            if (found.empty())
                return;
            const auto after = index_.get(key);
            if (after && after->revision == entry->revision) {
                report_.findings.insert(report_.findings.end(), found.begin(), found.end());
                return;
            }
        }
        report_.findings.push_back(
            {Kind::note, fmt::format("{}: it was changed again and again, and is not checked", shown(key))});
    }

    Findings check_function(const SharedEntry& entry) {
        Findings found;
        const auto broken = [&](const std::string& why) {
            found.push_back({Kind::broken, fmt::format("{}: {}", shown(entry.key), why)});
        };
        SharedFunction function;
        try {
            function = shared_function_from_text(entry.value);
        } catch (const RecordError& error) {
            broken(fmt::format("{}: deploy it again or restore a backup of the index", error.what()));
            return found;
        }
        for (const Route& route : function.record.routes) {
            const auto claimed = index_.get(shared_key(route));
            if (!claimed || claimed->value != function.record.name)
                broken(fmt::format("its route {} {}: deploy it again", route.text(),
                                   claimed ? "is another function's, " + tinykvm::brief(claimed->value)
                                           : "is not claimed"));
        }
        for (const SharedVersion& version : function.versions)
            if (const auto fault = check_snapshot(version))
                mend(version, *fault, entry.key, found);
        if (found.empty()) {
            ++report_.functions;
            report_.versions += function.versions.size();
        }
        return found;
    }

    Findings check_route(const SharedEntry& entry) {
        const auto owner = index_.get(fmt::format("{}{}", kSharedFunctions, entry.value));
        if (owner) {
            try {
                const SharedFunction function = shared_function_from_text(owner->value);
                if (std::ranges::any_of(function.record.routes,
                                        [&](const Route& route) { return shared_key(route) == entry.key; }))
                    return {};
            } catch (const RecordError&) {
                return {}; // the function's fault
            }
        }
        return {{Kind::broken, fmt::format("{}: {} does not have this route: delete the key with etcdctl",
                                           shown(entry.key), tinykvm::brief(entry.value))}};
    }

    struct Fault {
        std::string line;
        bool list_is_altered = false;
    };
    // What of it the bucket lacks; nothing: it has all.
    std::optional<Fault> check_snapshot(const SharedVersion& version) {
        const Digest& digest = version.record.snapshot;
        if (snapshots_.contains(digest))
            return std::nullopt;
        const auto text = store_.bucket()->get_record(digest);
        if (!text)
            return Fault{"the bucket has no list of the chunks of snapshot " + digest.hex()};
        SnapshotRecord record;
        try {
            record = snapshot_from_record(*text);
        } catch (const RecordError&) {
        }
        if (record.digest != digest || digest_of_pieces(record) != version.pieces)
            return Fault{fmt::format("the bucket's list of the chunks of snapshot {} is altered", digest.hex()), true};
        std::set<Digest> missing;
        for (const ChunkRef& piece : record.pieces)
            if (!chunks_there_.contains(piece.digest) && !store_.bucket()->has(piece.digest, piece.length))
                missing.insert(piece.digest);
        if (!missing.empty())
            return Fault{fmt::format("the bucket lacks {} of the chunks of snapshot {}, as {}", missing.size(),
                                     digest.hex(), store_.bucket()->name_of(*missing.begin()))};
        snapshots_.insert(digest);
        for (const ChunkRef& piece : record.pieces)
            chunks_.emplace(piece.digest, piece.length);
        return std::nullopt;
    }

    // This store's disk may have what the bucket lacks.
    void mend(const SharedVersion& version, const Fault& fault, const std::string& key, Findings& found) {
        const std::string line = fmt::format("{}: version {}: {}", shown(key), version.record.number, fault.line);
        if (!repair_) {
            found.push_back({Kind::repairable, line});
            return;
        }
        try {
            const Digest& snapshot = version.record.snapshot;
            if (!has_snapshot(*store_.index(), snapshot))
                throw NotFound("it does not have the snapshot");
            upload_snapshot(store_, snapshot, BucketUpload::Ask::all);
            if (fault.list_is_altered) {
                store_.bucket()->remove_record(snapshot);
                upload_record(store_, load_snapshot(*store_.index(), snapshot));
            }
            if (const auto still = check_snapshot(version))
                throw UserError(ExitCode::bad_snapshot, still->line);
            report_.findings.push_back({Kind::repaired, line + ": sent again from this store"});
        } catch (const ChunksAway&) {
            throw;
        } catch (const UserError& error) {
            found.push_back({Kind::broken, fmt::format("{}; this store cannot send it again ({}): run this on another "
                                                       "node of the cluster, or deploy it again",
                                                       line, error.what())});
        }
    }

    std::string shown(const std::string& key) const {
        return fmt::format("{}: {}", index_.name(), tinykvm::brief(key));
    }

    Store& store_;
    SharedIndex& index_;
    const bool repair_;
    VerifyReport report_;
    std::vector<std::string> copy_failures_;
    std::set<Digest> chunks_there_;
    std::set<Digest> snapshots_;             // whose chunks are all there
    std::map<Digest, std::uint64_t> chunks_; // of these, with their lengths
};

} // namespace

VerifyReport verify_shared(Store& store, bool repair) { return Verifier(store, repair).run(); }

} // namespace kvmserver::store
