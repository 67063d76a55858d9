// Reads what function processes print, line by line, on a thread of its own. Threads that serve requests never wait for
// a program that prints.
//
// A function may print a number of bytes per second, with bursts of kBurstSeconds. Lines beyond that are dropped, and
// their number is logged. The pipe of a program that prints faster still is read more slowly, so the program blocks.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "src/daemon/log_store.hpp"
#include "src/protocol/allowance.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

class Outputs {
public:
    // Overhead that is counted per line: files, followers and memory have it.
    static constexpr std::uint64_t kLineBytes = 64;
    static constexpr std::uint64_t kBurstSeconds = 8;
    static constexpr std::size_t kLongestLine = 8192; // longer lines are split

    class Source;

    // `bytes_a_second` is the limit per function; 0: none. `on_line` is called with every line, on this object's
    // thread. Throws HostError.
    Outputs(std::uint64_t bytes_a_second, std::function<void(LogLine)> on_line);
    ~Outputs();
    Outputs(const Outputs&) = delete;
    Outputs& operator=(const Outputs&) = delete;

    // Adds two pipes of a process. They must stay open until Source::finish(). Any thread. Throws HostError.
    std::shared_ptr<Source> add(const std::string& function, std::uint64_t version, int out, int errors);

private:
    struct Rate; // per function

    void loop();
    std::shared_ptr<Rate> rate_of(const std::string& function);
    void remove(Source& source);

    const std::uint64_t bytes_a_second_;
    const std::function<void(LogLine)> on_line_;
    tinykvm::UniqueFd epoll_, wake_;
    std::mutex mutex_;                                                   // guards the following
    std::unordered_map<std::uint64_t, std::shared_ptr<Source>> sources_; // by id; two for each source
    std::map<std::string, std::shared_ptr<Rate>> rates_;
    std::uint64_t next_id_ = 1;
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

} // namespace kvmserver::daemon
