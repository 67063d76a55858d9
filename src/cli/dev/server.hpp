// One build of the program, being served.
#pragma once
#include <memory>
#include <stdexcept>
#include <string>

#include "src/cli/dev/events.hpp"
#include "src/cli/events/json_events.hpp"
#include "src/cli/platform/manifest.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::dev {

// The program cannot be served in its current state; the cause was already printed.
class NotServed : public std::runtime_error {
public:
    // `code`: exit code of `dev` if it does not wait for a change.
    explicit NotServed(const std::string& why, tinykvm::ExitCode code = tinykvm::ExitCode::failure)
        : std::runtime_error(why), code_(code) {}
    tinykvm::ExitCode code() const { return code_; }

private:
    tinykvm::ExitCode code_;
};

// The process that boots the program and serves it from memory.
class Server {
public:
    struct Plan {
        int listening = -1; // the socket to serve
        std::string jail;   // jail mode of the process, such as "auto"
        bool verbose = false;
        JsonEvents* told = nullptr; // where events go; null: none
    };
    // Builds and boots. Throws NotServed, Stopped.
    Server(Events& events, const platform::Manifest& manifest, const Plan& plan);
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Takes no new clients; current ones are still served.
    void retire() { task_->process.ask_to_end(); }
    std::optional<int> ended() { return task_->process.poll(); }
    bool drained() { return *drained_ || ended(); } // it has no clients any more

private:
    void build(const platform::Manifest& manifest);
    void boot(const platform::Manifest& manifest);

    Events& events_;
    Plan plan_;
    std::shared_ptr<Task> task_;
    std::shared_ptr<bool> drained_ = std::make_shared<bool>(false);
};

} // namespace kvmserver::cli::dev
