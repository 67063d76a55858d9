#include "src/admin/assemble.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "src/admin/access.hpp"
#include "src/ops/delta.hpp"
#include "src/store/chunk_files.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::admin {
namespace {

using tinykvm::UniqueFd;
using Reach = std::optional<std::set<store::Digest>>; // pieces_within_reach

// The whole file, without a name: it goes with its descriptor.
UniqueFd unfold(Call& call, int upload, std::uint64_t bytes, const Reach& reach) {
    std::uint64_t at = 0;
    const ops::Delta delta = ops::read_delta(upload, bytes, at);
    const store::Folder& folder = call.store().folder();
    UniqueFd whole(::openat(folder.fd(), store::kTmp, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!whole)
        tinykvm::throw_errno("make a file in " + folder.full(store::kTmp));
    store::Sha256 sum;
    std::vector<std::byte> piece;
    for (const ops::DeltaPiece& each : delta.pieces) {
        if (each.sent) {
            piece.resize(each.length);
            if (store::read_at(upload, piece, at, "read the upload") != piece.size())
                throw store::BadValue("the upload ends early");
            at += each.length;
            if (store::sha256(piece) != each.digest)
                throw store::DigestMismatch("piece", each.digest, store::sha256(piece));
        } else {
            if (reach && !reach->contains(each.digest))
                throw store::MissingChunk(each.digest);
            try {
                piece = store::read_chunk(folder, each.digest, each.length);
            } catch (const tinykvm::UserError&) { // missing or altered: either way its bytes are needed
                throw store::MissingChunk(each.digest);
            }
        }
        sum.update(piece);
        tinykvm::write_all(whole.get(), piece, folder.full(store::kTmp));
    }
    if (const store::Digest actual = sum.finish(); actual != delta.snapshot)
        throw store::DigestMismatch("snapshot", delta.snapshot, actual);
    return whole;
}

ops::Imported import_from(store::Store& store, int fd, Reach reach) {
    const std::string path = fmt::format("/proc/self/fd/{}", fd);
    try {
        return ops::import_snapshot(store, path, std::move(reach));
    } catch (const tinykvm::UserError& error) { // the path says nothing to a client
        std::string text = error.what();
        if (const auto at = text.find(path); at != text.npos)
            text.replace(at, path.size(), "the upload");
        throw tinykvm::UserError(error.code(), text);
    }
}

} // namespace

ops::Imported assemble(Call& call, int upload) {
    struct stat facts {};
    if (::fstat(upload, &facts) != 0)
        tinykvm::throw_errno("stat the upload");
    Reach reach = pieces_within_reach(call);
    if (!ops::is_delta(upload))
        return import_from(call.store(), upload, std::move(reach));
    const UniqueFd whole = unfold(call, upload, static_cast<std::uint64_t>(facts.st_size), reach);
    return import_from(call.store(), whole.get(), std::move(reach));
}

} // namespace kvmserver::admin
