// What the commands talk to: the API of a daemon (local, or --remote), or the same API within this process
// over a store that nobody serves. A command cannot tell which.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/cli/command.hpp"

namespace kvmserver::cli::platform {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Pushed {
    std::string snapshot; // "sha256:..."
    std::uint64_t bytes = 0, new_bytes = 0;
};

struct Pulled {
    std::string snapshot;
    std::uint64_t bytes = 0;
};

// Errors are UserErrors as the store throws them, and UserError (unreachable).
class Connection {
public:
    virtual ~Connection() = default;
    // Null for a reply without a body.
    virtual nlohmann::json call(const std::string& method, const std::string& target,
                                const nlohmann::json& body = nullptr) = 0;
    // Whether there is no store yet (and looking must not make one).
    virtual bool empty() { return false; }
    // Only what it lacks travels; with a progress bar on a terminal.
    virtual Pushed push(const std::filesystem::path& file) = 0;
    virtual Pulled pull(const std::string& reference, int fd) = 0;
    // A reply that goes on for long; `sink` returns false to end it.
    virtual void stream(const std::string& target, const std::function<bool(std::string_view)>& sink) = 0;

    struct Raw {
        unsigned status = 0;
        Headers headers;
        std::string body;
        std::string_view header(std::string_view name) const;
    };
    // Refusals of the API are thrown, whatever else is the reply.
    virtual Raw raw(const std::string& method, const std::string& target, const Headers& headers,
                    const std::string& body) = 0;
    // For people.
    virtual std::string shown() const = 0;
    // "http://localhost:8080" of the daemon's public listener; what `serve` would take when none runs.
    std::string public_url(const std::string& route);
};

// By --remote, --store and --timeout.
std::unique_ptr<Connection> connect(const Invocation& invocation, Context& context);

// "/v1/functions/NAME" and more, encoded.
std::string target_of(std::initializer_list<std::string_view> segments);
std::string encoded(std::string_view text);

} // namespace kvmserver::cli::platform
