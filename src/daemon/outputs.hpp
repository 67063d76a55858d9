// What the processes of functions print, read line by line on a thread of its own: nobody who serves requests waits
// for a program that prints.
//
// A function may print so many bytes in a second, and some seconds' worth at once; what is beyond that is dropped, and
// how much it was is told. A program that prints faster still waits: of its pipe only so much is read in a while.
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
    // Of a line beside its text: files, followers and memory have it, too.
    static constexpr std::uint64_t kLineBytes = 64;
    static constexpr std::uint64_t kBurstSeconds = 8;
    static constexpr std::size_t kLongestLine = 8192; // a longer one is told in pieces

    class Source;

    // `bytes_a_second`: of a function; 0: as much as it likes. `tell` is called with every line, on a thread of its
    // own. Throws HostError.
    Outputs(std::uint64_t bytes_a_second, std::function<void(LogLine)> tell);
    ~Outputs();
    Outputs(const Outputs&) = delete;
    Outputs& operator=(const Outputs&) = delete;

    // Two pipes of a process, which stay open until Source::finish(). Any thread. Throws HostError.
    std::shared_ptr<Source> add(const std::string& function, std::uint64_t version, int out, int errors);

private:
    struct Rate; // of a function

    void loop();
    std::shared_ptr<Rate> rate_of(const std::string& function);
    void remove(Source& source);

    const std::uint64_t bytes_a_second_;
    const std::function<void(LogLine)> tell_;
    tinykvm::UniqueFd epoll_, wake_;
    std::mutex mutex_;                                                   // of what follows
    std::unordered_map<std::uint64_t, std::shared_ptr<Source>> sources_; // by id, of both streams
    std::map<std::string, std::shared_ptr<Rate>> rates_;
    std::uint64_t next_id_ = 1;
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

} // namespace kvmserver::daemon
