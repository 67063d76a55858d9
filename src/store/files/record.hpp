// Records: small files beside the index with the same content as its rows, from which a lost index is rebuilt.
//
//    kvmserver-record 1 KIND SHA256\n
//    JSON
//
// SHA256 is the digest of the JSON text. See FORMAT.md.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvmserver::store {

inline constexpr std::size_t kMaxRecordBytes = 64 << 20;

// An error in a record, without the record's path.
class RecordError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// The file content of a record of this kind.
std::string seal_record(std::string_view kind, std::string_view json);
// Checks a record's header and checksum and returns its JSON text, a view of `file`. Throws RecordError.
std::string_view open_record(std::string_view kind, std::string_view file);

} // namespace kvmserver::store
