// Records: small files beside the index that say the same as its rows, for the day when it is lost.
//
//     kvmserver-record 1 KIND SHA256\n
//     JSON
//
// SHA256 is that of the JSON text. See FORMAT.md.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvmserver::store {

inline constexpr std::size_t kMaxRecordBytes = 64 << 20;

// What is wrong with a record, without its path.
class RecordError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

std::string seal_record(std::string_view kind, std::string_view json);
// The JSON text. Throws RecordError.
std::string_view open_record(std::string_view kind, std::string_view file);

} // namespace kvmserver::store
