// Requests to the API of a daemon, here or elsewhere.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinykvm/base/error.hpp"

namespace kvmserver::remote {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Server {
    std::string url;              // "https://host:port", "http://127.0.0.1:port"; no path
    std::filesystem::path socket; // a Unix socket instead; then `url` is only for messages
    std::string token;            // "": none, then .netrc may know a password
    std::string ca_file;          // PEM; "": as curl does it
    double timeout_seconds = 300; // for a reply; for transfers: without a byte

    std::string shown() const { return socket.empty() ? url : "unix:" + socket.string(); }
};

// Throws UserError (usage) for a URL that is none, or plain HTTP beyond this machine.
void check_url(const std::string& url);

struct Ask {
    std::string method = "GET", target = "/";
    Headers headers = {};
    std::string body = {};
    // Instead of `body`: fills the buffer and returns how much; `body_bytes` in all.
    std::function<std::size_t(char*, std::size_t)> source = {};
    std::uint64_t body_bytes = 0;
    // Instead of Reply::body, when the status is below 400. False ends the transfer.
    std::function<bool(std::string_view)> sink = {};
    bool transfer = false; // it may last as long as bytes move
    bool endless = false;  // it may even say nothing for long
};

struct Reply {
    unsigned status = 0;
    Headers headers;
    std::string body;
    std::uint64_t sent = 0; // bytes of the body, all tries
    std::string_view header(std::string_view name) const;
};

// What the API refused.
class Problem : public tinykvm::UserError {
public:
    Problem(tinykvm::ExitCode exit, const std::string& message, unsigned status, std::string code,
            nlohmann::json document);
    unsigned status() const { return status_; }
    const std::string& name() const { return name_; } // "wrong-offset"
    const nlohmann::json& document() const { return document_; }

private:
    unsigned status_;
    std::string name_;
    nlohmann::json document_;
};

// The connection broke, or could not be made: worth another try.
class Broken : public tinykvm::UserError {
public:
    explicit Broken(const std::string& message) : UserError(tinykvm::ExitCode::unreachable, message) {}
};

// For one thread. Keeps its connection.
class Client {
public:
    explicit Client(Server server);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // Whatever the status is. Throws Broken; UserError for what no second try mends.
    Reply ask(const Ask& ask);
    // A status of 400 or more throws Problem; null for a reply without a body.
    nlohmann::json call(const std::string& method, const std::string& target, const nlohmann::json& body = nullptr,
                        const Headers& headers = {});
    const Server& server() const { return server_; }
    std::string shown() const { return server_.shown(); }

private:
    class Handle;
    Server server_;
    std::unique_ptr<Handle> handle_;
};

// Throws the Problem of a reply with status 400 or more.
[[noreturn]] void throw_problem(const Reply& reply, const std::string& server);

} // namespace kvmserver::remote
