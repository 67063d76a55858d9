// The internal command line of a function process, which `serve` starts from this binary.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/daemon/function_words.hpp"
#include "src/runner/function_worker.hpp"

namespace kvmserver::cli {

// kFunctionProcess TITLE CONTROL JAIL AHEAD [with-parent]. CONTROL: a descriptor's number (worker_messages.hpp). JAIL:
// the jail's mode. AHEAD: FunctionOptions::ahead_bytes. with-parent: it is killed when the thread that started it ends.
inline bool is_function_process(const std::vector<std::string>& words) {
    return !words.empty() && words[0] == daemon::kFunctionProcess;
}

// kFunctionTemplate TITLE CONTROL JAIL: the template of such processes (src/daemon/function_template.hpp).
inline bool is_function_template(const std::vector<std::string>& words) {
    return !words.empty() && words[0] == daemon::kFunctionTemplate;
}

// Returns the exit code; prints an error as one line on stderr. `title` is TITLE in the process's argument memory. It
// is overwritten with the name of what is served, for `ps`.
int function_process(const std::vector<std::string>& words, std::span<char> title,
                     const std::function<int(FunctionOptions)>& action);
// The same in a process that is forked. `first` is the first word in the argument memory.
int function_template(const std::vector<std::string>& words, std::span<char> first, std::span<char> title,
                      const std::function<int(FunctionOptions)>& action);

} // namespace kvmserver::cli
