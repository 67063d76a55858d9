// What travels when the other side has parts of a snapshot already: a list of all its pieces, then the bytes
// of those that it lacks.
//
//     "KVMDELTA"  u32 version (1)  u32 pieces  SHA-256 of the snapshot
//     for each piece: SHA-256, u64 length, whose highest bit says that the bytes follow
//     the bytes of the pieces so marked, in the order of the list
//
// Numbers are little-endian.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/digest.hpp"

namespace kvmserver::ops {

inline constexpr std::string_view kDeltaMagic = "KVMDELTA";

struct DeltaPiece {
    Digest digest;
    std::uint64_t length = 0;
    bool sent = false;
};

struct Delta {
    Digest snapshot;
    std::vector<DeltaPiece> pieces;
};

std::string encode_delta(const Delta& delta); // without the bytes of pieces

// The list at the beginning of a file, whose size must be what the list says; `bytes_at` becomes where the
// bytes of pieces begin. Throws BadValue for what is none.
Delta read_delta(int fd, std::uint64_t file_bytes, std::uint64_t& bytes_at);
bool is_delta(int fd);

} // namespace kvmserver::ops
