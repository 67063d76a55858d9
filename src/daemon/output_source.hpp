// The two output pipes of a process (outputs.hpp).
#pragma once
#include <deque>
#include <vector>

#include "src/daemon/outputs.hpp"

namespace kvmserver::daemon {

// How much a function may print. Shared by its processes. Thread-safe.
struct Outputs::Rate {
    Rate(std::uint64_t bytes_a_second, std::uint64_t now_ns);
    bool take(std::uint64_t bytes, std::uint64_t now_ns);
    bool full(std::uint64_t now_ns);

private:
    const bool limited_;
    std::mutex mutex_;
    protocol::Allowance allowance_;
};

class Outputs::Source {
public:
    Source(Outputs& outputs, std::string function, std::uint64_t version, std::shared_ptr<Rate> rate, int out,
           int errors);

    // Attributes what is printed from now on to that request; "": unknown. Does not wait for the reader thread.
    void mark(const std::string& request_id);
    // Reads what is left in the pipes; they may be closed afterwards. Puts lines that were not delivered yet into
    // `lines`. Returns the last line that our own code printed about the program, or "".
    std::string finish(std::vector<LogLine>& lines);

private:
    friend class Outputs;
    enum class Turn {
        wait,  // until there is more to read
        more,  // there is more, but others have their turn first
        pause, // it prints too much
        over,  // it is closed
    };
    struct Marker {
        std::uint64_t offset; // in all bytes that the stream has delivered
        std::string request_id;
    };
    struct Stream {
        int fd = -1;
        std::string line;              // unfinished
        bool whole = false;            // it may contain whole lines
        std::uint64_t line_offset = 0; // offset of the beginning of `line`
        std::string request_id;        // of the bytes at that offset
        // Guarded by offsets_:
        std::uint64_t read = 0;
        std::deque<Marker> markers;
    };

    // turn_ is held:
    Turn read(std::size_t stream);
    bool cut_lines(std::size_t stream, std::size_t max_lines); // false: some were dropped
    bool emit_line(std::size_t stream, std::string_view text);
    void report_dropped(bool at_end);
    void say(LogLine line);
    bool has_to_tell(); // whether dropped lines must be reported; true once until they are

    Outputs& outputs_;
    const std::string function_;
    const std::uint64_t version_;
    const std::shared_ptr<Rate> rate_;
    std::uint64_t ids_[2] = {};
    std::mutex turn_; // held while the pipes are read
    Stream streams_[2];
    std::string last_words_;
    std::uint64_t dropped_lines_ = 0, dropped_bytes_ = 0, dropped_since_ns_ = 0;
    bool finished_ = false, will_tell_ = false;
    std::vector<LogLine>* collected_ = nullptr; // where to put lines instead of delivering them
    std::mutex offsets_;                        // held briefly only: threads that serve requests take it
};

} // namespace kvmserver::daemon
