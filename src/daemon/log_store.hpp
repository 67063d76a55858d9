// The lines that functions print: the newest in memory, more of them in files.
#pragma once
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/daemon/request_log.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

struct LogLine {
    // Increases with every line of the daemon, so that a reader can ask for lines after it. It is the time in
    // microseconds, or the last id plus one if that is larger. So it also increases across restarts, and does not
    // reveal how much others print.
    std::uint64_t id = 0;
    std::int64_t ms = 0; // since 1970
    std::string function;
    std::uint64_t version = 0;
    std::string stream;       // "out", "err": printed by the program; "daemon": about it
    std::string request_id;   // "" if it is unknown which request printed it
    std::string text;         // without the newline; invalid UTF-8 is replaced
    std::string json() const; // one object, without a newline
};

struct LogLimits {
    std::size_t lines = 1000;              // in memory, per function
    std::uint64_t file_bytes = 8ull << 20; // per function, in two files
};

// Thread-safe. A line is in memory and in its file before followers see it.
class LogStore {
public:
    // Files are FOLDER/NAME/current.ndjson and previous.ndjson (see LogLine::json). Without a folder ("") there are
    // none.
    explicit LogStore(std::filesystem::path folder, const LogLimits& limits = {});
    ~LogStore();
    LogStore(const LogStore&) = delete;
    LogStore& operator=(const LogStore&) = delete;

    void add(LogLine line); // sets `id`, and `ms` if it is 0
    // Limits the function's files to `bytes`; nothing, or more: LogLimits::file_bytes.
    void limit(const std::string& function, std::optional<std::uint64_t> bytes);
    void forget(const std::string& function);   // deletes the lines and files of a deleted function
    std::vector<std::string> functions() const; // that have files

    struct Query {
        std::string function;      // "": all functions
        std::int64_t since_ms = 0; // lines at or after it
        std::uint64_t after_id = 0;
        std::optional<std::uint64_t> version;
        std::string request_id; // "": all requests
        std::string contains;   // only lines with this text
        bool errors = false;    // only what is not the program's stdout
        std::size_t last = 0;   // only this many, the newest; 0: all
        bool matches(const LogLine& line) const;
    };
    // Oldest first. Lines that are no longer in memory, or from before the daemon started, are read from the files.
    std::vector<LogLine> lines(const Query& query) const;

    // Calls `on_line` for every new line that matches, on the thread that adds it. `on_line` must not block or call
    // this object. It is not called any more once the returned object is destroyed. To miss nothing: follow first, then
    // call lines(), and drop followed lines whose id was among them.
    class Follower;
    std::shared_ptr<Follower> follow(const Query& query, std::function<void(const LogLine&)> on_line);

    RequestLog& requests() { return requests_; }

private:
    class Files;
    struct Followers;
    const LogLimits limits_;
    mutable std::mutex mutex_;
    std::uint64_t last_id_ = 0;
    std::map<std::string, std::deque<LogLine>> memory_;
    std::unique_ptr<Files> files_; // null: none
    std::shared_ptr<Followers> followers_;
    RequestLog requests_;
};

} // namespace kvmserver::daemon
