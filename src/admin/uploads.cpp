// /v1/uploads: resumable uploads.
#include "src/store/snapshots/uploads.hpp"

#include <fmt/format.h>

#include "src/admin/access.hpp"
#include "src/admin/assemble.hpp"
#include "src/admin/handlers.hpp"
#include "src/common/time_text.hpp"
#include "src/ops/json.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/io_buffer.hpp"

namespace kvmserver::admin {
namespace {

using store::UploadInfo;
using store::Uploads;

constexpr std::uint64_t kStep = 8u << 20; // at most this much is lost when a connection breaks

Headers progress(const UploadInfo& upload) {
    return {{"Upload-Offset", std::to_string(upload.offset)},
            {"Upload-Length", std::to_string(upload.size)},
            {"Cache-Control", "no-store"}};
}

json upload_json(const UploadInfo& upload) {
    return {{"id", upload.id},
            {"size", upload.size},
            {"offset", upload.offset},
            {"sha256", upload.digest.hex()},
            {"created", time_text(upload.created)}};
}

// An unfinished upload of the same file that this caller began.
std::optional<UploadInfo> unfinished(Call& call, Uploads& uploads, std::uint64_t size, const Digest& digest) {
    for (const UploadInfo& upload : uploads.list())
        if (upload.token == call.who.id() && upload.size == size && upload.digest == digest)
            return upload;
    return std::nullopt;
}

// Writes what the client sends, until it ends or disconnects. What has arrived is kept in both cases.
std::uint64_t take(Call& call, store::UploadWriter& writer) {
    tinykvm::IoBuffer buffer(64u << 10);
    std::uint64_t synced = writer.offset();
    try {
        while (const std::size_t count = call.exchange.read(buffer)) {
            writer.write(std::span(buffer.data(), count));
            if (writer.offset() - synced >= kStep) {
                writer.sync();
                synced = writer.offset();
            }
        }
    } catch (const ClientGone&) {
        writer.sync();
        throw;
    }
    writer.sync();
    return writer.offset();
}

void drop(Uploads& uploads, const std::string& id) {
    try {
        uploads.drop(id);
    } catch (const store::NotFound&) { // dropped meanwhile
    } catch (const store::Conflict&) { // another request is completing it and will drop it
    }
}

// Drops an upload whose bytes are wrong, since they would be wrong again. After any other failure (busy index, full
// disk) it stays, and another PATCH completes it.
ops::Imported complete(Call& call, Uploads& uploads, const std::string& id) {
    std::optional<ops::Imported> imported;
    try {
        const store::LockedUpload file = uploads.complete(id);
        imported.emplace(assemble(call, file.get()));
    } catch (const store::MissingChunk&) {
        drop(uploads, id);
        throw;
    } catch (const tinykvm::UserError& error) {
        if (error.code() == tinykvm::ExitCode::bad_snapshot || error.code() == tinykvm::ExitCode::usage)
            drop(uploads, id);
        throw;
    }
    drop(uploads, id);
    return std::move(*imported);
}

} // namespace

void list_uploads(Call& call) {
    auto list = json::array();
    for (const UploadInfo& upload : Uploads(call.store()).list())
        list.push_back(upload_json(upload));
    call.reply(200, {{"uploads", list}});
}

void create_upload(Call& call) {
    Members members = call.members();
    const std::uint64_t size = members.need_natural("size");
    const Digest digest = digest_from(members.need_text("sha256"), "sha256");
    members.done();
    store::Store& store = call.api.source().make();
    try {
        call.api.staged().add(take_snapshot(call, digest), call.who.id());
        call.reply(200, {{"complete", true}, {"snapshot", "sha256:" + digest.hex()}});
        return;
    } catch (const store::NotFound&) {
    }
    Uploads uploads(store);
    const auto known = unfinished(call, uploads, size, digest);
    const UploadInfo upload = known ? *known : call.api.uploads().create(store, call.who, size, digest);
    Headers headers = progress(upload);
    headers.emplace_back("Location", "/v1/uploads/" + upload.id);
    json object = upload_json(upload);
    object["complete"] = false;
    call.reply(known ? 200 : 201, object, headers);
}

void head_upload(Call& call) { call.reply_empty(200, progress(find_upload(call, call.param("id")))); }

void append_upload(Call& call) {
    const std::string offset(call.request.header("Upload-Offset"));
    if (offset.empty())
        throw store::BadValue("the header Upload-Offset is missing: HEAD says where the upload stands");
    const std::string& id = call.param("id");
    Uploads uploads(call.store());
    UploadInfo upload = find_upload(call, id);
    {
        store::UploadWriter writer = uploads.append(id, number_from(offset, "Upload-Offset"));
        upload.offset = take(call, writer);
    }
    if (upload.offset < upload.size)
        return call.reply_empty(204, progress(upload));
    ops::Imported imported = complete(call, uploads, id);
    const std::string snapshot = "sha256:" + imported.hold.digest().hex();
    call.api.staged().add(std::move(imported.hold), call.who.id());
    Headers headers = progress(upload);
    call.reply(
        200, {{"complete", true}, {"snapshot", snapshot}, {"bytes", imported.bytes}, {"new_bytes", imported.new_bytes}},
        headers);
}

void delete_upload(Call& call) {
    call.no_members();
    Uploads(call.store()).drop(find_upload(call, call.param("id")).id);
    call.reply(200, {{"deleted", call.param("id")}});
}

} // namespace kvmserver::admin
