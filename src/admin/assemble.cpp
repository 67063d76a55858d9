#include "src/admin/assemble.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "src/admin/access.hpp"
#include "src/ops/delta.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::admin {
namespace {

using tinykvm::UniqueFd;
using Reach = std::optional<std::set<Digest>>; // pieces_within_reach

// One that was sent. It may be long, so not at once.
void copy_piece(int upload, std::uint64_t at, const ops::DeltaPiece& piece,
                const std::function<void(std::span<const std::byte>)>& append) {
    constexpr std::size_t kBlock = 256 << 10;
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(piece.length, kBlock)));
    Sha256 sum;
    for (std::uint64_t left = piece.length; left > 0;) {
        const auto count = std::min<std::uint64_t>(buffer.size(), left);
        const auto part = std::span(buffer).first(static_cast<std::size_t>(count));
        if (tinykvm::read_at(upload, at, part, "read the upload") != part.size())
            throw store::BadValue("the upload ends early");
        sum.update(part);
        append(part);
        at += part.size();
        left -= part.size();
    }
    if (const Digest actual = sum.finish(); actual != piece.digest)
        throw store::DigestMismatch("piece", piece.digest, actual);
}

// The whole file, without a name: it goes with its descriptor.
UniqueFd unfold(Call& call, int upload, std::uint64_t bytes, const Reach& reach) {
    std::uint64_t at = 0;
    const ops::Delta delta = ops::read_delta(upload, bytes, at);
    std::uint64_t all = 0;
    for (const ops::DeltaPiece& each : delta.pieces)
        all += each.length;
    call.api.uploads().require_room(call.store(), call.who, all);
    const store::Folder& folder = call.store().folder();
    UniqueFd whole(::openat(folder.fd(), store::kTmp, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!whole)
        tinykvm::throw_errno("make a file in " + folder.full(store::kTmp));
    Sha256 sum;
    const auto append = [&](std::span<const std::byte> part) {
        sum.update(part);
        tinykvm::write_all(whole.get(), part, folder.full(store::kTmp));
    };
    for (const ops::DeltaPiece& each : delta.pieces) {
        if (each.sent) {
            copy_piece(upload, at, each, append);
            at += each.length;
            continue;
        }
        if (reach && !reach->contains(each.digest))
            throw store::MissingChunk(each.digest);
        try {
            store::read_chunk(folder, each.digest, each.length, append);
        } catch (const tinykvm::UserError&) { // missing or altered: either way its bytes are needed
            throw store::MissingChunk(each.digest);
        }
    }
    if (const Digest actual = sum.finish(); actual != delta.snapshot)
        throw store::DigestMismatch("snapshot", delta.snapshot, actual);
    return whole;
}

ops::Imported import_from(Call& call, int file, Reach reach) {
    constexpr const char* kName = "the upload";
    struct stat facts {};
    if (::fstat(file, &facts) != 0)
        tinykvm::throw_errno("stat the upload");
    // Its pieces are stored beside it.
    call.api.uploads().require_room(call.store(), call.who, static_cast<std::uint64_t>(facts.st_size));
    SnapshotFacts snapshot;
    try {
        snapshot = call.api.examinations().of_file(file, static_cast<std::uint64_t>(facts.st_size));
    } catch (const daemon::ExaminersBusy& busy) {
        throw Refused(503, "busy", busy.what(), "PATCH with Upload-Offset at its end goes on", {{"Retry-After", "1"}});
    } catch (const tinykvm::UserError& error) {
        if (error.code() != tinykvm::ExitCode::bad_snapshot)
            throw;
        throw tinykvm::UserError(error.code(), fmt::format("{}: {}", kName, error.what()));
    }
    ops::Imported imported = ops::import_pieces(call.store(), file, snapshot.pieces, kName, std::move(reach));
    call.api.examinations().learn(imported.hold.digest(), std::move(snapshot));
    return imported;
}

} // namespace

ops::Imported assemble(Call& call, int upload) {
    Reach reach = pieces_within_reach(call);
    if (!ops::is_delta(upload))
        return import_from(call, upload, std::move(reach));
    struct stat facts {};
    if (::fstat(upload, &facts) != 0)
        tinykvm::throw_errno("stat the upload");
    const UniqueFd whole = unfold(call, upload, static_cast<std::uint64_t>(facts.st_size), reach);
    return import_from(call, whole.get(), std::move(reach));
}

} // namespace kvmserver::admin
