// Reads what this process and its children write to the descriptors 1 and 2.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <thread>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli {

// While it exists, both descriptors are pipes to a thread of its own.
class OutputCapture {
public:
    // `stream`: "stdout" or "stderr"; `line` without its newline.
    using OnLine = std::function<void(const char* stream, const std::string& line)>;
    explicit OutputCapture(OnLine on_line);
    ~OutputCapture(); // puts the descriptors back; all that was written until now has been read
    OutputCapture(const OutputCapture&) = delete;
    OutputCapture& operator=(const OutputCapture&) = delete;

private:
    struct Stream {
        const char* name;
        int number;
        tinykvm::UniqueFd before, read_end;
        std::string rest = {}; // an incomplete line
    };
    void read_all();
    bool read(Stream& stream); // false: nothing more at the moment
    void lines(Stream& stream, bool at_end);

    OnLine on_line_;
    tinykvm::UniqueFd over_;
    std::array<Stream, 2> streams_;
    std::thread thread_; // last: it uses the members above
};

} // namespace kvmserver::cli
