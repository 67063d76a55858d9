#include "src/ops/delta.hpp"

#include <cstring>

#include "src/snapshot/facts.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::ops {
namespace {

constexpr std::size_t kHead = 8 + 4 + 4 + 32, kRow = 32 + 8;
constexpr std::uint64_t kSent = std::uint64_t{1} << 63;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
constexpr std::uint32_t kVersion = 1;

template <class Number>
void append(std::string& out, Number value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
        out += static_cast<char>(value >> (8 * i) & 0xff);
}

void append(std::string& out, const Digest& digest) {
    out.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
}

template <class Number>
Number number_at(const std::byte* from) {
    Number value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i)
        value |= static_cast<Number>(static_cast<Number>(from[i]) << (8 * i));
    return value;
}

Digest digest_at(const std::byte* from) {
    Digest digest;
    std::memcpy(digest.bytes.data(), from, digest.bytes.size());
    return digest;
}

[[noreturn]] void bad(const char* why) { throw store::BadValue(std::string("the upload is not a delta: ") + why); }

void read_exactly(int fd, std::span<std::byte> bytes, std::uint64_t offset) {
    if (tinykvm::read_at(fd, offset, bytes, "read the upload") != bytes.size())
        bad("it ends early");
}

} // namespace

std::string encode_delta(const Delta& delta) {
    std::string out(kDeltaMagic);
    append(out, kVersion);
    append(out, static_cast<std::uint32_t>(delta.pieces.size()));
    append(out, delta.snapshot);
    for (const DeltaPiece& piece : delta.pieces) {
        append(out, piece.digest);
        append(out, piece.length | (piece.sent ? kSent : 0));
    }
    return out;
}

bool is_delta(int fd) {
    std::byte magic[8];
    return tinykvm::read_at(fd, 0, magic, "read the upload") == sizeof magic &&
           std::memcmp(magic, kDeltaMagic.data(), sizeof magic) == 0;
}

Delta read_delta(int fd, std::uint64_t file_bytes, std::uint64_t& bytes_at) {
    std::byte head[kHead];
    read_exactly(fd, head, 0);
    if (number_at<std::uint32_t>(head + 8) != kVersion)
        bad("its version is not 1");
    const auto count = number_at<std::uint32_t>(head + 12);
    if (count == 0 || count > kMaxPieces || kHead + std::uint64_t{count} * kRow > file_bytes)
        bad("its list of pieces is longer than it");
    std::vector<std::byte> rows(count * kRow);
    read_exactly(fd, rows, kHead);
    Delta delta{digest_at(head + 16), {}};
    delta.pieces.reserve(count);
    bytes_at = kHead + rows.size();
    std::uint64_t sent = 0, all = 0;
    for (const std::byte* row = rows.data(); row != rows.data() + rows.size(); row += kRow) {
        const auto length = number_at<std::uint64_t>(row + 32);
        const DeltaPiece piece{digest_at(row), length & ~kSent, (length & kSent) != 0};
        if (piece.length == 0 || piece.length > kLargest || (all += piece.length) > kLargest)
            bad("a piece has an impossible length");
        if (piece.sent)
            sent += piece.length;
        delta.pieces.push_back(piece);
    }
    if (bytes_at + sent != file_bytes)
        bad("its length is not that of its list and pieces");
    return delta;
}

} // namespace kvmserver::ops
