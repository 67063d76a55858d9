// For how long a daemon may serve functions without its cluster's index (serve --cluster-away-limit).
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "src/store/files/folder.hpp"

namespace kvmserver::cluster {

// The time of the last contact is kept in the store, so that a restart does not extend it.
class AwayLimit {
public:
    // Without a record of the last contact the time begins now. `limit` 0: for ever. `note` gets lines for the log.
    AwayLimit(const std::filesystem::path& store, std::chrono::milliseconds limit,
              std::function<void(const std::string&)> note);

    // To be called often, by one thread at a time. `reached`: the index is, at this moment.
    void tick(bool reached);
    // Whether functions are not to be served. Any thread.
    bool over() const { return over_; }

private:
    bool read_record(); // false: there is none
    void write_record(std::int64_t now);

    store::Folder folder_;
    const std::int64_t limit_; // milliseconds
    const std::function<void(const std::string&)> note_;
    std::int64_t contact_ = 0; // the last one; ms of CLOCK_BOOTTIME, which also runs while the host sleeps
    std::int64_t written_ = 0; // when it was recorded, of the same clock
    std::string said_;         // why the record could not be written, which is not repeated; "": it could
    bool was_reached_ = false;
    std::atomic<bool> over_ = false;
};

} // namespace kvmserver::cluster
