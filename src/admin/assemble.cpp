#include "src/admin/assemble.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "src/admin/access.hpp"
#include "src/ops/delta.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/importer.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::admin {
namespace {

using Reach = std::optional<std::set<Digest>>; // pieces_within_reach

constexpr const char* kName = "the upload";

// Examines in a separate process. Throws Refused, UserError (bad_snapshot).
SnapshotFacts examined(Call& call, const std::function<SnapshotFacts(daemon::Examinations&)>& examine) {
    try {
        return examine(call.api.examinations());
    } catch (const daemon::ExaminersBusy& busy) {
        throw Refused(503, "busy", busy.what(), "a PATCH with Upload-Offset at its end continues",
                      {{"Retry-After", "1"}});
    } catch (const tinykvm::UserError& error) {
        if (error.code() != tinykvm::ExitCode::bad_snapshot)
            throw;
        throw tinykvm::UserError(error.code(), fmt::format("{}: {}", kName, error.what()));
    }
}

// Reads each byte once, before the snapshot is examined. Uploaded pieces become files, known pieces are linked.
ops::Imported import_delta(Call& call, int upload, std::uint64_t bytes, Reach reach) {
    std::uint64_t at = 0;
    const ops::Delta delta = ops::read_delta(upload, bytes, at);
    std::uint64_t all = 0;
    for (const ops::DeltaPiece& each : delta.pieces)
        all += each.length;
    call.api.uploads().require_room(call.store(), call.who, all);
    store::Importer importer(call.store(), std::move(reach));
    for (const ops::DeltaPiece& each : delta.pieces) {
        if (!each.sent) {
            importer.put_known(each.digest, each.length);
            continue;
        }
        importer.put_part(upload, at, each.length, kName);
        at += each.length;
        if (const Digest actual = importer.piece(importer.piece_count() - 1).digest; actual != each.digest)
            throw store::DigestMismatch("piece", each.digest, actual);
    }
    const Digest digest = importer.finish(delta.snapshot);
    SnapshotFacts facts = examined(
        call, [&](daemon::Examinations& examinations) { return examinations.of_pieces(importer, importer.size()); });
    if (!std::ranges::equal(facts.pieces, delta.pieces, {}, {}, &ops::DeltaPiece::length))
        throw tinykvm::UserError(tinykvm::ExitCode::bad_snapshot,
                                 fmt::format("{}: it is not cut as the snapshot's own pieces are", kName));
    ops::Imported imported{importer.commit(digest), importer.size(), importer.new_bytes()};
    call.api.examinations().learn(digest, std::move(facts));
    return imported;
}

ops::Imported import_whole(Call& call, int file, std::uint64_t bytes, Reach reach) {
    call.api.uploads().require_room(call.store(), call.who, bytes); // its pieces are stored in addition to the file
    SnapshotFacts facts =
        examined(call, [&](daemon::Examinations& examinations) { return examinations.of_file(file, bytes); });
    ops::Imported imported = ops::import_pieces(call.store(), file, facts.pieces, kName, std::move(reach));
    call.api.examinations().learn(imported.hold.digest(), std::move(facts));
    return imported;
}

} // namespace

ops::Imported assemble(Call& call, int upload) {
    struct stat info {};
    if (::fstat(upload, &info) != 0)
        tinykvm::throw_errno("stat the upload");
    const auto bytes = static_cast<std::uint64_t>(info.st_size);
    Reach reach = pieces_within_reach(call);
    return ops::is_delta(upload) ? import_delta(call, upload, bytes, std::move(reach))
                                 : import_whole(call, upload, bytes, std::move(reach));
}

} // namespace kvmserver::admin
