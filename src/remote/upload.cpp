#include "src/remote/upload.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "src/ops/delta.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::remote {
namespace {

using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr int kTries = 6; // without progress between them
constexpr unsigned kBusy = 503;
constexpr int kRounds = 3;

// The upload as one byte sequence: the list of pieces, then the pieces that are sent.
class Bytes {
public:
    Bytes(const Pieces& from, const ops::Delta& delta) : from_(from), head_(ops::encode_delta(delta)) {
        size_ = head_.size();
        std::uint64_t offset = 0;
        for (const ops::DeltaPiece& piece : delta.pieces) {
            if (piece.sent) {
                parts_.push_back({size_, offset, piece.length});
                size_ += piece.length;
            }
            offset += piece.length;
        }
    }
    std::uint64_t size() const { return size_; }

    std::size_t read(std::uint64_t at, char* into, std::size_t most) const {
        if (at < head_.size()) {
            const std::size_t count = std::min<std::uint64_t>(most, head_.size() - at);
            std::copy_n(head_.data() + at, count, into);
            return count;
        }
        if (at >= size_)
            return 0;
        const auto part = std::prev(std::ranges::upper_bound(parts_, at, {}, &Part::at));
        const std::size_t count = std::min<std::uint64_t>(most, part->at + part->length - at);
        from_.read(part->offset + (at - part->at), std::span(reinterpret_cast<std::byte*>(into), count));
        return count;
    }

    Digest digest() const {
        Sha256 sum;
        std::vector<char> buffer(1u << 20);
        for (std::uint64_t at = 0; at < size_;) {
            const std::size_t count = read(at, buffer.data(), buffer.size());
            sum.update(std::as_bytes(std::span(buffer.data(), count)));
            at += count;
        }
        return sum.finish();
    }

private:
    struct Part {
        std::uint64_t at, offset, length;
    };
    const Pieces& from_;
    std::string head_;
    std::vector<Part> parts_;
    std::uint64_t size_ = 0;
};

// Of a file, which is cut here.
Pieces pieces_of(const ops::DigestedFile& file) {
    const std::string name = file.path().string();
    const auto fd = std::make_shared<tinykvm::UniqueFd>(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!*fd)
        tinykvm::throw_errno("open " + name);
    Pieces pieces;
    pieces.read = [fd, name](std::uint64_t offset, std::span<std::byte> into) {
        if (tinykvm::read_at(fd->get(), offset, into, "read " + name) != into.size())
            throw UserError(ExitCode::bad_snapshot, fmt::format("{}: it changed while it was read", name));
    };
    const auto cut = std::make_shared<const ops::CutFile>(file.path());
    pieces.verify = [cut](std::size_t piece) { cut->verify(piece); };
    tinykvm::IoBuffer bytes;
    for (const ops::FilePiece& piece : cut->pieces()) {
        bytes.resize(piece.length);
        pieces.read(piece.offset, bytes);
        pieces.pieces.push_back({sha256(bytes), piece.length, false});
    }
    return pieces;
}

std::optional<std::uint64_t> offset_of(const Reply& reply) {
    const std::string_view text = reply.header("Upload-Offset");
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && !text.empty() && end == text.data() + text.size() ? std::optional(value)
                                                                                     : std::nullopt;
}

UserError not_the_api(const Client& client) {
    return {ExitCode::failure, fmt::format("{} does not answer as the API of kvmserver", client.shown())};
}

// Sends one upload, with retries.
class Sender {
public:
    Sender(Client& client, const Bytes& bytes, const Progress& progress, Uploaded& result)
        : client_(client), bytes_(bytes), progress_(progress), result_(result) {}

    // Returns false if the server's set of pieces has changed: then ask again what is missing.
    bool run() {
        const json begun =
            client_.call("POST", "/v1/uploads", {{"size", bytes_.size()}, {"sha256", bytes_.digest().hex()}});
        if (begun.value("complete", false))
            return true;
        target_ = "/v1/uploads/" + begun.at("id").get<std::string>();
        offset_ = begun.at("offset").get<std::uint64_t>();
        int failures = 0;
        for (int waits = 0;;) {
            const std::uint64_t before = offset_;
            try {
                switch (send()) {
                case Outcome::complete: return true;
                case Outcome::changed: return false;
                case Outcome::goes_on: failed(failures); break;
                case Outcome::taken: ++waits;
                }
            } catch (const Broken&) {
                if (++failures >= kTries)
                    throw;
            }
            pause(std::max(failures, waits));
            if (!find_offset(failures))
                return false;
            if (offset_ > before)
                failures = waits = 0;
        }
    }

private:
    enum class Outcome {
        complete,
        goes_on, // at the offset that HEAD reports
        taken,   // locked by another client, or by a broken connection that the server has not given up yet
        changed, // the server's set of pieces: ask again what is missing
    };

    static void pause(int tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200) * (1 << std::min(tries, 5)));
    }

    void failed(int& failures) const {
        if (++failures >= kTries)
            throw Broken(fmt::format("{}: the upload makes no progress: try again later", client_.shown()));
    }

    [[noreturn]] void busy() const { throw Broken(fmt::format("{}: it is busy: try again later", client_.shown())); }

    Outcome send() {
        std::uint64_t at = offset_;
        const Reply reply = client_.ask({.method = "PATCH",
                                         .target = target_,
                                         .headers = {{"Upload-Offset", std::to_string(at)}},
                                         .body = "",
                                         .source =
                                             [&](char* into, std::size_t most) {
                                                 const std::size_t count = bytes_.read(at, into, most);
                                                 at += count;
                                                 result_.sent_bytes += count;
                                                 progress_(at, bytes_.size());
                                                 return count;
                                             },
                                         .body_bytes = bytes_.size() - offset_,
                                         .sink = nullptr,
                                         .transfer = true});
        if (reply.status == 200) {
            const json done = json::parse(reply.body);
            result_.new_bytes = done.at("new_bytes");
            return Outcome::complete;
        }
        if (reply.status == 204)
            return Outcome::goes_on;
        if (reply.status == kBusy)
            busy();
        const json problem = json::parse(reply.body, nullptr, false);
        const auto named = problem.is_object() ? problem.find("code") : problem.end();
        const std::string code = named != problem.end() && named->is_string() ? named->get<std::string>() : "";
        if (code == "missing-chunk" || reply.status == 404)
            return Outcome::changed;
        if (code == "wrong-offset")
            return Outcome::goes_on;
        if (code == "conflict")
            return Outcome::taken;
        throw_problem(reply, client_.shown());
    }

    // Asks for the current offset. Returns false if the server no longer knows the upload.
    bool find_offset(int& failures) {
        for (;;) {
            try {
                const Reply reply = client_.ask({.method = "HEAD", .target = target_});
                if (reply.status == 404)
                    return false;
                if (reply.status == kBusy) // a reply to HEAD has no body with a reason
                    busy();
                const auto offset = offset_of(reply);
                if (reply.status != 200 || !offset)
                    throw_problem(reply, client_.shown());
                offset_ = *offset;
                return true;
            } catch (const Broken&) {
                if (++failures >= kTries)
                    throw;
                pause(failures);
            }
        }
    }

    Client& client_;
    const Bytes& bytes_;
    const Progress& progress_;
    Uploaded& result_;
    std::string target_;
    std::uint64_t offset_ = 0;
};

} // namespace

Uploaded upload(Client& client, const ops::DigestedFile& file, const Progress& progress) {
    return upload(
        client, file.digest(), file.bytes(), [&] { return pieces_of(file); }, progress);
}

Uploaded upload(Client& client, const Digest& snapshot, std::uint64_t bytes, const std::function<Pieces()>& cut,
                const Progress& progress) try {
    Uploaded result;
    result.snapshot = "sha256:" + snapshot.hex();
    result.bytes = bytes;
    const auto ask = [&](const json& pieces) {
        return client.call("POST", "/v1/snapshots/missing", {{"snapshot", result.snapshot}, {"pieces", pieces}});
    };
    if (ask(json::array()).at("present").get<bool>()) // without a list of pieces, which takes longer to make
        return result;
    const Pieces from = cut();
    ops::Delta delta;
    delta.pieces = from.pieces;
    delta.snapshot = snapshot;
    auto list = json::array();
    for (const ops::DeltaPiece& piece : delta.pieces)
        list.push_back({piece.digest.hex(), piece.length});
    for (int round = 0; round < kRounds; ++round) {
        const json answer = ask(list);
        if (answer.at("present").get<bool>())
            return result;
        // In the last round send everything: what the server believes to have may be corrupted on its disk.
        for (ops::DeltaPiece& piece : delta.pieces)
            piece.sent = round + 1 == kRounds;
        for (const json& index : answer.at("missing")) {
            const auto at = index.get<std::size_t>();
            if (at >= delta.pieces.size())
                throw not_the_api(client);
            delta.pieces[at].sent = true;
        }
        for (std::size_t i = 0; i < delta.pieces.size(); ++i)
            if (delta.pieces[i].sent && from.verify)
                from.verify(i);
        if (Sender(client, Bytes(from, delta), progress, result).run())
            return result;
    }
    throw UserError(
        ExitCode::failure,
        fmt::format("{}: pieces of the snapshot keep vanishing: kvmserver verify --remote", client.shown()));
} catch (const json::exception&) { // a reply lacks what ours have
    throw not_the_api(client);
}

} // namespace kvmserver::remote
