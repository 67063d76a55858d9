// What functions print, line by line: the newest in memory, more of it in files.
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

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

struct LogLine {
    // Grows with every line of the daemon, for "what came after". It is the time in microseconds, one more at
    // least than the last one: it goes on growing over restarts, and does not tell how much others print.
    std::uint64_t id = 0;
    std::int64_t ms = 0; // since 1970
    std::string function;
    std::uint64_t version = 0;
    std::string stream;       // "out": of the program; "daemon": about it
    std::string request_id;   // "" when it is not known which request printed it
    std::string text;         // without the line's end; UTF-8 (what was not is replaced)
    std::string json() const; // one object, without a line's end
};

struct LogLimits {
    std::size_t lines = 1000;              // in memory, of each function
    std::uint64_t file_bytes = 8ull << 20; // of each function, in two files
};

// Thread-safe. A line goes to the memory and the file before any follower hears of it.
class LogStore {
public:
    // Files are FOLDER/NAME/current.ndjson and previous.ndjson (see LogLine::json). Without a folder ("")
    // there are none.
    explicit LogStore(std::filesystem::path folder, const LogLimits& limits = {});
    ~LogStore();
    LogStore(const LogStore&) = delete;
    LogStore& operator=(const LogStore&) = delete;

    void add(LogLine line); // `id` and, when 0, `ms` are set here
    // In files; nothing: LogLimits::file_bytes. More than that it never is.
    void limit(const std::string& function, std::optional<std::uint64_t> bytes);
    void forget(const std::string& function);   // it was deleted: its lines and files go
    std::vector<std::string> functions() const; // that files are kept of

    struct Query {
        std::string function;      // "": of all
        std::int64_t since_ms = 0; // lines at or after it
        std::uint64_t after_id = 0;
        std::optional<std::uint64_t> version;
        std::string request_id; // "": of all
        std::size_t last = 0;   // only so many, the newest; 0: all
        bool matches(const LogLine& line) const;
    };
    // Oldest first. What is no longer in memory (or was printed before the daemon began) is read from the
    // files.
    std::vector<LogLine> lines(const Query& query) const;

    // Calls `told` for every new line that matches, on the thread that adds it: it must not block, nor call
    // this object. Ends with the returned object; once that is destroyed, `told` is not called any more. To
    // miss nothing: follow first, then ask for lines(), and drop what is told with an id that was among them.
    class Follower;
    std::shared_ptr<Follower> follow(const Query& query, std::function<void(const LogLine&)> told);

private:
    class Files;
    struct Followers;
    const LogLimits limits_;
    mutable std::mutex mutex_;
    std::uint64_t last_id_ = 0;
    std::map<std::string, std::deque<LogLine>> memory_;
    std::unique_ptr<Files> files_; // null: none
    std::shared_ptr<Followers> followers_;
};

} // namespace kvmserver::daemon
