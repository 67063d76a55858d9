#include "src/store/snapshots/bucket_record.hpp"

#include <fmt/format.h>

#include <string>

#include "src/store/errors.hpp"
#include "src/store/files/record.hpp"
#include "src/store/files/record_json.hpp"

namespace kvmserver::store {

std::optional<std::string> bucket_owner(const Folder& folder) {
    const auto file = folder.read(kBucket, kMaxRecordBytes);
    if (!file)
        return std::nullopt;
    try {
        return text_field(parse_record(open_record("bucket", *file)), "store");
    } catch (const RecordError& error) {
        throw UserError(ExitCode::failure,
                        fmt::format("{}: {}: put a copy of it in its place", folder.full(kBucket), error.what()));
    }
}

void set_bucket_owner(Folder& folder, const std::string& id) {
    folder.put(kBucket, seal_record("bucket", Json{{"store", id}}.dump()));
    folder.sync_folder(".");
}

} // namespace kvmserver::store
