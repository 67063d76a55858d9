// The internal command line of an examiner process, which the daemon starts from this binary.
#pragma once
#include <string>
#include <vector>

namespace kvmserver::cli {

// kExaminer CONTROL JAIL: a descriptor's number (worker_messages.hpp) and the jail's mode.
inline constexpr const char* kExaminer = "--examiner";
inline bool is_examiner(const std::vector<std::string>& words) { return !words.empty() && words[0] == kExaminer; }

int examiner_process(const std::vector<std::string>& words); // returns the exit code

} // namespace kvmserver::cli
