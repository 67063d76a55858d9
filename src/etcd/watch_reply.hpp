// What the gateway sends to a watch: lines of JSON, in pieces of any length.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/etcd/json.hpp"
#include "src/etcd/watch.hpp"

namespace kvmserver::etcd {

// Makes lines of pieces.
class Lines {
public:
    explicit Lines(std::size_t longest) : longest_(longest) {}
    // False: a line is too long; nothing more is taken.
    bool add(std::string_view piece);
    // The next whole line, without its end; empty lines are left out. nullopt: there is none yet.
    std::optional<std::string> next();
    // What came after the last whole line.
    std::string_view rest() const { return std::string_view(text_).substr(at_); }

private:
    std::size_t longest_;
    std::string text_;
    std::size_t at_ = 0;      // of the first byte that no line had
    std::size_t scanned_ = 0; // there is no end of a line between at_ and this
};

// Makes batches of the lines of one watch, which follows the keys below `prefix` from the changes of revision `from`
// on.
class WatchReader {
public:
    WatchReader(std::string prefix, std::int64_t from) : prefix_(std::move(prefix)), told_(from - 1) {}

    struct Line {
        std::optional<Batch> batch;
        bool compacted = false;
        std::optional<ErrorReply> error; // the watch is over
    };
    // Throws BadReply.
    Line read(std::string_view line);
    // All changes up to here are in batches.
    std::int64_t told() const { return told_; }

private:
    std::optional<Batch> batch_up_to(std::int64_t revision);

    std::string prefix_;
    std::int64_t told_;
    std::vector<Event> held_; // not in a batch, by revision: more of the last one's revision may come
};

} // namespace kvmserver::etcd
