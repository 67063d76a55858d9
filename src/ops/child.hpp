// Processes that a command or the API starts, mostly of this very binary.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::ops {

inline constexpr const char* kSelf = "/proc/self/exe";

// Ends with this object, and with the thread that made it. Without stdin; both of its outputs go to `output`.
class Child {
public:
    Child(const std::vector<std::string>& argv, const std::string& folder, int output);
    ~Child(); // kills it
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    int wait();                       // its status as a shell sees it
    tinykvm::UniqueFd end_fd() const; // readable once it has ended

private:
    pid_t pid_ = -1;
    std::string name_;
    std::optional<int> status_;
};

// What the status of a kvmserver that a command started means for the command: the same, where it is of what
// it was asked for (and not of how it was called), else failure.
tinykvm::ExitCode exit_code_of(int status);

// A file in memory, for output that is shown only when something went wrong.
tinykvm::UniqueFd memory_file(const char* name);
std::string text_of(int fd, std::size_t most = 1 << 16); // from its beginning

} // namespace kvmserver::ops
