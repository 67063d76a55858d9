// A command's connection to the API: of a daemon (local, or --remote), or the same API within this process if no daemon
// serves the store. Commands cannot tell the difference.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/cli/command.hpp"
#include "src/cli/platform/public_url.hpp"
#include "src/ops/import.hpp"

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

// Errors are the store's UserErrors, and UserError (unreachable).
class Connection {
public:
    virtual ~Connection() = default;
    // Null for a reply without a body.
    virtual nlohmann::json call(const std::string& method, const std::string& target,
                                const nlohmann::json& body = nullptr) = 0;
    // Whether there is no store yet. Does not create one.
    virtual bool empty() { return false; }
    // Sends only the missing pieces. Shows a progress bar on a terminal.
    virtual Pushed push(const ops::DigestedFile& file) = 0;
    virtual Pulled pull(const std::string& reference, int fd) = 0;
    // For a long reply. `sink` returns false to end it.
    virtual void stream(const std::string& target, const std::function<bool(std::string_view)>& sink) = 0;

    struct Raw {
        unsigned status = 0;
        Headers headers;
        std::string body;
        std::string_view header(std::string_view name) const;
    };
    // Throws refusals of the API; every other reply is returned.
    virtual Raw raw(const std::string& method, const std::string& target, const Headers& headers,
                    const std::string& body) = 0;
    // For people.
    virtual std::string shown() const = 0;
    // The daemon's host if it is another one; "" for this host.
    virtual std::string server() const { return {}; }
    // Whether a daemon is at the other end, which serves what is deployed.
    virtual bool serves() const { return true; }
    // What the other end does once a function is live. Nothing unless a snapshot gets there as fast as a file is
    // copied.
    struct Later {
        bool compresses = false;   // compresses a snapshot anew that was compressed in a hurry
        bool takes_warmed = false; // takes the warmed-up snapshot of a version that is live
    };
    virtual Later later() { return {}; }
    // The daemon's public listener; an empty address if it is not known.
    const Listening& listening();
    // Of a route, there.
    PublicUrl public_url(const std::string& route);

private:
    std::optional<Listening> listening_; // asked for once
};

// Connects according to --remote, --store and --timeout.
std::unique_ptr<Connection> connect(const Invocation& invocation, Context& context);

// Joins and encodes segments: "/v1/functions/NAME".
std::string target_of(std::initializer_list<std::string_view> segments);
std::string encoded(std::string_view text);

} // namespace kvmserver::cli::platform
