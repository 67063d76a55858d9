// libFuzzer: what somebody uploads, over the API: a snapshot's file or a delta of one, whole or in parts,
// with any of it wrong. It becomes a snapshot only when it is one, to the byte, and else leaves nothing.
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/common/digest.hpp"
#include "src/daemon/examinations.hpp"
#include "src/daemon/process_messages.hpp"
#include "src/ops/delta.hpp"
#include "src/snapshot/facts.hpp"
#include "tests/fuzz/snapshot_parts.hpp"
#include "tests/fuzz/support.hpp"
#include "tests/unit/admin/world.hpp"
#include "tinykvm/base/write.hpp"

using namespace fuzz;

namespace {

constexpr unsigned kInputsOfWorld = 200;

std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string digest_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))).hex(); }

class Uploader {
public:
    Uploader() {
        token_ = store::Tokens(world_.store).create("uploader", store::kScopeDeploy);
        const auto [status, snapshot] =
            upload(text_of(good().file), digest_of(text_of(good().file)), good().file.size());
        FUZZ_REQUIRE(status == 200 && snapshot == "sha256:" + digest_of(text_of(good().file)));
    }
    struct Outcome {
        unsigned status = 0;
        std::string snapshot; // "": none came of it
    };
    // All of it at once.
    Outcome upload(const std::string& bytes, const std::string& digest, std::uint64_t size) {
        const auto made = ask("POST", "/v1/uploads", nlohmann::json{{"size", size}, {"sha256", digest}}.dump());
        if (made.status != 201)
            return {made.status, made.status == 200 ? made.json().value("snapshot", "") : ""};
        return send(made.json().at("id"), bytes, 0);
    }
    std::string begin(const std::string& digest, std::uint64_t size) {
        const auto made = ask("POST", "/v1/uploads", nlohmann::json{{"size", size}, {"sha256", digest}}.dump());
        return made.status == 201 ? made.json().at("id").get<std::string>() : "";
    }
    Outcome send(const std::string& id, const std::string& bytes, std::uint64_t offset) {
        const auto reply = ask("PATCH", "/v1/uploads/" + id, bytes, {{"Upload-Offset", std::to_string(offset)}});
        return {reply.status, reply.status == 200 ? reply.json().value("snapshot", "") : ""};
    }
    // What is begun is given up; nothing else is left.
    void clean_up() {
        for (const store::UploadInfo& each : store::Uploads(world_.store).list())
            FUZZ_REQUIRE(ask("DELETE", "/v1/uploads/" + each.id, "").status == 200);
        for (const char* folder : {"tmp", "uploads"})
            if (const auto at = (world_.folder / "store") / folder; std::filesystem::exists(at))
                FUZZ_REQUIRE(std::filesystem::is_empty(at));
    }

private:
    admin::test::Reply ask(const std::string& method, const std::string& target, const std::string& body,
                           const admin::Headers& headers = {}) {
        const auto reply = world_.ask(method, target, body, headers, token_);
        FUZZ_REQUIRE(reply.status >= 200 && reply.status < 600 && reply.status != 500);
        return reply;
    }

    // As by an examiner, but in this process.
    static SnapshotFacts examine(int file, std::uint64_t bytes) {
        try {
            return facts_from_text(to_text(examine_snapshot(file)), Depth::whole, bytes);
        } catch (const FormatError& error) {
            throw tinykvm::UserError(tinykvm::ExitCode::bad_snapshot, error.what());
        }
    }
    static SnapshotFacts examine_pieces(const store::PieceFiles& pieces, std::uint64_t bytes) {
        const tinykvm::UniqueFd list(::memfd_create("list", MFD_CLOEXEC));
        const std::string text = daemon::list_of(pieces);
        tinykvm::write_all(list.get(), std::as_bytes(std::span(text)), "the list");
        std::vector<tinykvm::UniqueFd> files;
        for (std::size_t i = 0; i < pieces.piece_count(); ++i)
            files.push_back(pieces.open_piece(i));
        try {
            const auto source = open_pieces_source(list.get(), std::move(files));
            return facts_from_text(to_text(examine_snapshot(*source, Depth::whole)), Depth::whole, bytes);
        } catch (const FormatError& error) {
            throw tinykvm::UserError(tinykvm::ExitCode::bad_snapshot, error.what());
        }
    }
    admin::test::World world_{{.executable = "/bin/false",
                               .examinations = std::make_shared<daemon::Examinations>(
                                   daemon::Examinations::Operations{examine, examine_pieces, {}})}};
    std::string token_;
};

// The file cut into pieces, some of which are not sent, some of which are not as they say.
std::string delta_of(const std::string& file, Input& in) {
    ops::Delta delta;
    delta.snapshot = sha256(std::as_bytes(std::span(file)));
    std::string sent;
    const auto add = [&](std::string_view piece) {
        ops::DeltaPiece each{sha256(std::as_bytes(std::span(piece))), piece.size(), in.byte() % 4 != 0};
        const unsigned wrong = in.byte();
        if (wrong >= 250)
            each.digest.bytes[0] ^= static_cast<std::uint8_t>(1);
        else if (wrong >= 244)
            each.length = in.take<std::uint64_t>() >> 1;
        else if (wrong >= 240)
            ++each.length;
        delta.pieces.push_back(each);
        if (each.sent)
            sent += piece;
    };
    // As the store keeps it, mostly: header, chunk, metadata, index.
    std::size_t at = 0;
    for (unsigned n = 0; at < file.size() && n < 16; ++n) {
        static const std::size_t kKept[] = {format::kHeaderBytes, good().chunk.size(),
                                            good().stored_metadata.stored.size(), good().stored_index.stored.size()};
        const std::size_t length = in.byte() % 4 ? kKept[n % 4] : in.take<std::uint16_t>() + std::size_t{1};
        add(std::string_view(file).substr(at, std::min(length, file.size() - at)));
        at += std::min(length, file.size() - at);
    }
    if (at < file.size())
        add(std::string_view(file).substr(at));
    if (in.byte() >= 250)
        delta.snapshot.bytes[1] ^= static_cast<std::uint8_t>(1);
    std::string out = ops::encode_delta(delta) + sent;
    if (in.byte() >= 250)
        out[in.take<std::uint16_t>() % out.size()] ^= static_cast<char>(1 + in.byte() % 255);
    return out;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static std::optional<Uploader> uploader;
    static unsigned inputs = 0;
    if (inputs++ % kInputsOfWorld == 0)
        uploader.reset();
    if (!uploader)
        uploader.emplace();
    Input in(data, size);
    const unsigned how = in.byte(), kind = in.byte();
    const auto part = in.bytes(how % 4 == 0 ? size : in.take<std::uint16_t>() % 2048);
    const auto given = std::as_bytes(part);
    const Bytes made = how % 8 < 2 ? good().file : file_for(kind, Bytes(given.begin(), given.end()));
    const std::string file = text_of(made), bytes = how % 2 ? delta_of(file, in) : file;
    if (bytes.empty())
        return 0;
    std::string digest = digest_of(bytes);
    if (in.byte() >= 250)
        digest[0] = digest[0] == '0' ? '1' : '0';
    const std::uint64_t announced = in.byte() >= 250 ? in.take<std::uint32_t>() : bytes.size();

    Uploader::Outcome outcome;
    if (in.byte() % 4) {
        outcome = uploader->upload(bytes, digest, announced);
    } else if (const std::string id = uploader->begin(digest, announced); !id.empty()) {
        std::size_t at = 0;
        for (unsigned n = 0; n < 6 && at < bytes.size(); ++n) {
            const std::size_t length = 1 + in.take<std::uint16_t>() % bytes.size();
            const std::uint64_t offset = in.byte() >= 240 ? in.take<std::uint16_t>() : at;
            outcome = uploader->send(id, bytes.substr(at, length), offset);
            if (outcome.status == 204)
                at += length;
            else if (outcome.status != 409)
                break;
        }
    }
    // What it is known by is what it is.
    FUZZ_REQUIRE(outcome.snapshot.empty() || outcome.snapshot == "sha256:" + digest_of(file));
    uploader->clean_up();
    return 0;
}
