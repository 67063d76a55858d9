// Requests to a cluster: which endpoint, which token, and what a failure means.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/etcd/json.hpp"
#include "src/etcd/transfer.hpp"

namespace kvmserver::etcd {

// Whether a request may be sent again though it may have been executed.
enum class Repeat { yes, no };

// Any number of threads may use it.
class Session {
public:
    Session(Address address, Credentials credentials, const Limits& limits);

    // Sends `body` to `path` ("/v3/kv/range"), and returns the reply. Throws Away and Refused.
    Json ask(const std::string& path, const Json& body, Repeat repeat);

    const Address& address() const { return address_; }
    const Limits& limits() const { return limits_; }

    // --- parts, for Watch
    Request request(const std::string& endpoint, const std::string& path, const Json& body, Repeat repeat,
                    const std::string& token) const;
    std::size_t current() const { return current_; } // index of the endpoint that answered last
    // etcd says who needs to log in, so nobody does before that.
    std::string token() const; // "": none is known
    bool has_credentials() const { return !credentials_.user.empty(); }
    Request login_request(const std::string& endpoint) const;
    std::string take_login(const std::string& endpoint, const Reply& reply); // the new token. Throws Away and Refused
    // Throws Away or Refused.
    [[noreturn]] void fail(const std::string& endpoint, const ErrorReply& error, Repeat repeat) const;

private:
    Reply send(Request request);
    Reply send_as_user(const std::string& endpoint, const std::string& path, const Json& body, Repeat repeat);
    Json json_of(const std::string& endpoint, const std::string& path, const Reply& reply, Repeat repeat) const;
    void leave(std::size_t endpoint); // it does not serve: the next one first

    const Address address_;
    const Credentials credentials_;
    const Limits limits_;
    std::atomic<std::size_t> current_ = 0;
    mutable std::mutex mutex_;
    std::string token_;                           // guarded by mutex_
    std::vector<std::unique_ptr<Transfer>> idle_; // guarded by mutex_
};

} // namespace kvmserver::etcd
