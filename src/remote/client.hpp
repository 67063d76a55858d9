// An HTTP client for the API of a daemon, local or remote.
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
    std::filesystem::path socket; // a Unix socket instead of TCP; `url` is then only for messages
    std::string token;            // "": none; .netrc may have a password
    std::string ca_file;          // PEM; "": curl's default
    double timeout_seconds = 300; // for a reply; for transfers: without a byte

    std::string shown() const { return socket.empty() ? url : "unix:" + socket.string(); }
};

// Throws UserError (usage) for an invalid URL, or for plain HTTP to another host.
void check_url(const std::string& url);

struct Ask {
    std::string method = "GET", target = "/";
    Headers headers = {};
    std::string body = {};
    // Instead of `body`: fills the buffer and returns the number of bytes; `body_bytes` in total.
    std::function<std::size_t(char*, std::size_t)> source = {};
    std::uint64_t body_bytes = 0;
    // Receives the body instead of Reply::body, if the status is below 400. Returns false to end the transfer.
    std::function<bool(std::string_view)> sink = {};
    bool transfer = false; // may take as long as bytes move
    bool endless = false;  // may also be silent for long
};

struct Reply {
    unsigned status = 0;
    Headers headers;
    std::string body;
    std::uint64_t sent = 0; // bytes of the body, including retries
    std::string_view header(std::string_view name) const;
};

// A refusal by the API.
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

// The connection broke or could not be made. A retry may succeed.
class Broken : public tinykvm::UserError {
public:
    explicit Broken(const std::string& message) : UserError(tinykvm::ExitCode::unreachable, message) {}
};

class Transport; // transport.hpp

// Keeps its connection. Belongs to one thread.
class Client {
public:
    explicit Client(Server server);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // Returns the reply, whatever its status. Throws Broken, and UserError for failures that a retry cannot help.
    Reply ask(const Ask& ask);
    // Throws Problem for a status of 400 or more. Null for a reply without a body.
    nlohmann::json call(const std::string& method, const std::string& target, const nlohmann::json& body = nullptr,
                        const Headers& headers = {});
    const Server& server() const { return server_; }
    std::string shown() const { return server_.shown(); }
    std::string other_host() const; // of the server; "" for this host

private:
    Server server_;
    std::unique_ptr<Transport> local_; // of a server with a socket
    std::unique_ptr<Transport> curl_;  // made when it is needed: loading libcurl takes 13 ms
};

// Throws the Problem of a reply with a status of 400 or more.
[[noreturn]] void throw_problem(const Reply& reply, const std::string& server);

} // namespace kvmserver::remote
