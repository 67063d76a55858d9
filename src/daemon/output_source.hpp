// The two pipes of a process whose output is read (outputs.hpp).
#pragma once
#include <deque>
#include <vector>

#include "src/daemon/outputs.hpp"

namespace kvmserver::daemon {

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

    // What is printed from now on belongs to that request; "": it is not known to which. Does not wait for a reader.
    void mark(const std::string& request_id);
    // Reads what is left, and never again: the pipes may be closed then. Lines that have not been told are put into
    // `lines`. Returns the last of our own lines about the program, "" for none.
    std::string finish(std::vector<LogLine>& lines);

private:
    friend class Outputs;
    enum class Turn {
        wait,  // until there is more to read
        more,  // there is, and others have their turn before
        pause, // it prints too much
        over,  // it is closed
    };
    struct Marker {
        std::uint64_t offset; // in what the stream has ever said
        std::string request_id;
    };
    struct Stream {
        int fd = -1;
        std::string line;       // unfinished
        bool whole = false;     // there may be whole lines in it
        std::uint64_t told = 0; // offset of its beginning
        std::string request_id; // of what is read there
        // With offsets_ held:
        std::uint64_t read = 0;
        std::deque<Marker> markers;
    };

    // With turn_ held:
    Turn read(std::size_t stream);
    bool cut_lines(std::size_t stream, std::size_t most); // false: some were dropped
    bool tell(std::size_t stream, std::string_view text);
    void tell_dropped(bool at_end);
    void say(LogLine line);
    bool has_to_tell(); // of lines that were dropped; once, until that is told

    Outputs& outputs_;
    const std::string function_;
    const std::uint64_t version_;
    const std::shared_ptr<Rate> rate_;
    std::uint64_t ids_[2] = {};
    std::mutex turn_; // of the reader's
    Stream streams_[2];
    std::string last_words_;
    std::uint64_t dropped_lines_ = 0, dropped_bytes_ = 0, dropped_since_ns_ = 0;
    bool finished_ = false, will_tell_ = false;
    std::vector<LogLine>* collected_ = nullptr; // in place of telling
    std::mutex offsets_;                        // never held for long: whoever serves requests takes it
};

} // namespace kvmserver::daemon
