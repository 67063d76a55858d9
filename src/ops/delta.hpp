// The format of an upload to a server that has parts of the snapshot already: a list of all pieces, then the bytes of
// the missing ones.
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

// Reads the list at the beginning of a file, and checks that the file's size fits the list. Sets `bytes_at` to the
// offset of the first piece's bytes. Throws BadValue if it is not valid.
Delta read_delta(int fd, std::uint64_t file_bytes, std::uint64_t& bytes_at);
bool is_delta(int fd);

} // namespace kvmserver::ops
