// /v1/snapshots
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "src/admin/access.hpp"
#include "src/admin/handlers.hpp"
#include "src/ops/reference.hpp"
#include "src/snapshot/facts.hpp"
#include "src/snapshot/json_text.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/importer.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::admin {
namespace {

struct Range {
    std::uint64_t begin = 0, end = 0; // `end` is one past the last byte
};

// Parses a Range header. Returns nothing for the whole file: without the header, or if it is not of a supported form.
std::optional<Range> range_of(std::string_view header, std::uint64_t size) {
    if (!header.starts_with("bytes=") || header.find(',') != header.npos)
        return std::nullopt;
    header.remove_prefix(6);
    const auto dash = header.find('-');
    if (dash == header.npos)
        return std::nullopt;
    const std::string_view first = header.substr(0, dash), last = header.substr(dash + 1);
    Range range{0, size};
    if (first.empty()) { // "-N": the last N bytes
        range.begin = size - std::min(size, number_from(last, "Range"));
    } else {
        range.begin = number_from(first, "Range");
        if (!last.empty())
            range.end = std::min(size, number_from(last, "Range") + 1);
    }
    if (range.begin >= range.end)
        throw Refused(416, "bad-range", "the range lies beyond the snapshot", "",
                      {{"Content-Range", fmt::format("bytes */{}", size)}});
    return range;
}

Digest referred(Call& call) {
    std::string reference = call.param("digest");
    if (Digest::from_hex(reference))
        reference = "sha256:" + reference;
    // A limited caller must give the whole digest: with a prefix it could search for digests. With a whole one it does
    // not learn whether somebody has it.
    if (call.who.limited() && reference.starts_with("sha256:"))
        return digest_from(reference, "snapshot");
    // A function's name resolves only for callers who may see the function.
    if (!reference.starts_with("sha256:") &&
        !call.who.allows(store::kScopeDeploy, reference.substr(0, reference.find('@'))))
        throw store::NotFound("there is no such snapshot");
    return ops::find_snapshot(call.store(), reference);
}

struct Listed {
    Digest snapshot;
    std::vector<store::ChunkRef> pieces;
};

// Reads {"snapshot": ..., "pieces": [[SHA-256, bytes], ...]} as a stream: the list is long, and only one piece at a
// time is held as JSON.
Listed listed(Call& call) {
    constexpr std::size_t kMax = 8 << 20;
    std::array<std::byte, 16 << 10> buffer;
    std::size_t bytes = 0;
    JsonText text([&]() -> std::string_view {
        const std::size_t count = call.exchange.read(buffer);
        if ((bytes += count) > kMax)
            throw Refused(413, "too-large", fmt::format("the body is larger than {} bytes", kMax));
        return {reinterpret_cast<const char*>(buffer.data()), count};
    });
    const auto wrong = [] { throw store::BadValue("\"pieces\" must be a list of [SHA-256, bytes]"); };
    std::optional<Digest> snapshot;
    std::vector<store::ChunkRef> pieces;
    try {
        text.object([&](const std::string& name) {
            if (name == "snapshot") {
                const json value = text.value();
                if (!value.is_string())
                    throw store::BadValue("\"snapshot\" must be a string");
                snapshot = digest_from(value.get_ref<const std::string&>(), "snapshot");
            } else if (name == "pieces") {
                text.array(
                    [&](std::size_t index) {
                        const json piece = text.value();
                        if (index >= kMaxPieces)
                            throw store::BadValue(fmt::format("more than {} pieces are listed", kMaxPieces));
                        if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() ||
                            !piece[1].is_number_unsigned())
                            wrong();
                        pieces.push_back({digest_from(piece[0].get_ref<const std::string&>(), "pieces"), piece[1]});
                    },
                    wrong);
            } else {
                throw store::BadValue(fmt::format("\"{}\" is not known here", tinykvm::brief(name)));
            }
        });
        text.expect_end();
    } catch (const FormatError&) {
        throw store::BadValue("the body must be a JSON object, of \"snapshot\" and \"pieces\"");
    }
    if (!snapshot)
        throw store::BadValue("\"snapshot\" is missing");
    return {*snapshot, std::move(pieces)};
}

} // namespace

void list_snapshots(Call& call) {
    std::map<Digest, json> all;
    const auto entry = [&](const Digest& digest, std::uint64_t bytes) -> json& {
        return all
            .try_emplace(digest,
                         json{{"snapshot", "sha256:" + digest.hex()}, {"bytes", bytes}, {"used_by", json::array()}})
            .first->second;
    };
    store::Functions functions(call.store());
    for (const store::FunctionSummary& function : functions.list())
        if (call.who.allows(store::kScopeRead, function.name))
            for (const store::VersionInfo& version : versions_of(functions, function.name))
                entry(version.snapshot, version.snapshot_bytes)["used_by"].push_back(
                    fmt::format("{}@{}", function.name, version.number));
    if (!call.who.limited())
        for (const std::string& file : call.store().folder().list(store::kSnapshots))
            if (const auto digest = Digest::from_hex(file.substr(0, file.find('.')));
                digest && !all.contains(*digest)) {
                try {
                    entry(*digest, store::StoredSnapshot(call.store(), *digest).size());
                } catch (const store::NotFound&) { // deleted by gc meanwhile
                }
            }
    auto list = json::array();
    for (const auto& [digest, object] : all)
        list.push_back(object);
    call.reply(200, {{"snapshots", list}});
}

void get_snapshot(Call& call) {
    const Digest digest = referred(call);
    take_snapshot(call, digest);
    const store::StoredSnapshot snapshot(call.store(), digest);
    const auto range = range_of(call.request.header("Range"), snapshot.size());
    const Range part = range.value_or(Range{0, snapshot.size()});
    Headers headers{{"Content-Type", "application/octet-stream"},
                    {"Accept-Ranges", "bytes"},
                    {"ETag", fmt::format("\"{}\"", digest.hex())}};
    if (range)
        headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", part.begin, part.end - 1, snapshot.size()));
    call.exchange.begin(range ? 206 : 200, headers, part.end - part.begin);
    if (call.request.method == "HEAD")
        return;
    tinykvm::IoBuffer buffer(256u << 10);
    for (std::uint64_t at = part.begin; at < part.end;) {
        const auto count = std::min<std::uint64_t>(buffer.size(), part.end - at);
        const std::span bytes(buffer.data(), count);
        snapshot.read(at, bytes);
        call.exchange.write(bytes);
        at += count;
    }
}

void missing_pieces(Call& call) {
    const auto [snapshot, pieces] = listed(call);
    store::Store& store = call.api.source().make();
    try {
        call.api.staged().add(take_snapshot(call, snapshot), call.who.id());
        call.reply(200, {{"present", true}, {"missing", json::array()}});
        return;
    } catch (const store::NotFound&) {
    }
    const auto reach = pieces_within_reach(call);
    const auto lacking = store::missing(store, pieces);
    const std::set<Digest> lacks(lacking.begin(), lacking.end());
    auto missing = json::array();
    for (std::size_t i = 0; i < pieces.size(); ++i)
        if (lacks.contains(pieces[i].digest) || (reach && !reach->contains(pieces[i].digest)))
            missing.push_back(i);
    call.reply(200, {{"present", false}, {"missing", missing}});
}

} // namespace kvmserver::admin
