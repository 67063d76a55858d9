// Starts, watches and ends the processes of functions.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/daemon/function_process.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// A version of a function, whether a process serves it now or not. The front's threads connect, the supervisor's thread does
// the rest.
class Target {
public:
    struct Facts {
        std::string name; // "hello v4"
        std::string function;
        std::uint64_t version = 0;
        std::filesystem::path snapshot;
        unsigned machines = 1;       // request machines of its process
        std::uint64_t idle_ns = 0;   // after so long without a request its process ends
    };
    explicit Target(Facts facts) : facts_(std::move(facts)) {}
    const Facts& facts() const { return facts_; }

    std::atomic<std::uint64_t> in_flight{0};
    std::atomic<std::uint64_t> last_used_ns{0};

private:
    friend class Supervisor;
    std::filesystem::path socket_; // of its process; "" while there is none; under the supervisor's mutex
    Facts facts_;
};

class Supervisor {
public:
    // `log` gets one line each of what functions print and of what happens to them.
    // Sockets are made in `folder`, which nobody else may enter.
    Supervisor(std::filesystem::path folder, std::function<void(const std::string&)> log);
    // Ends all processes.
    ~Supervisor();
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;

    // A connection to the target's process, which is started if there is none: the connection waits in its socket
    // meanwhile. Without an fd, and with errno set (EAGAIN: too many wait), when that fails. Thread-safe.
    tinykvm::UniqueFd connect(const std::shared_ptr<Target>& target);
    // Processes that run now.
    std::size_t processes() const { return count_.load(); }

private:
    struct Running {
        std::shared_ptr<Target> target;
        std::unique_ptr<FunctionProcess> process;
        std::string line; // of its output, unfinished
        bool stopping = false;
    };
    void loop();
    void start(const std::shared_ptr<Target>& target);
    void read_output(Running& running);
    void stop_idle();

    std::filesystem::path folder_;
    std::function<void(const std::string&)> log_;
    tinykvm::UniqueFd wake_;
    std::mutex mutex_; // guards what follows and each Target's socket
    std::vector<Running> running_;
    std::uint64_t started_ = 0;
    std::atomic<std::size_t> count_{0};
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

} // namespace kvmserver::daemon
