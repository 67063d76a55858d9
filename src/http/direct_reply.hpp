// Sends a complete reply to the client from the thread that produced it, before the request's own thread is notified.
// This saves the client one thread switch. It covers the simple case only; Exchange handles the rest.
#pragma once
#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "src/http/net.hpp"
#include "src/http/options.hpp"
#include "src/http/request_head.hpp"

namespace kvmserver::http {

class DirectReply {
public:
    // Returns an object if a direct reply is possible: the request has arrived completely, and what follows the reply
    // is another request or the connection's end. `socket`, `options` and `draining` belong to the request, which keeps
    // them alive and writes nothing until it knows of the answer.
    static std::optional<DirectReply> allowed(int socket, const RequestHead& head, const Options& options,
                                              const std::atomic<bool>& draining);

    // Any thread, once, never blocks. Returns false if nothing was sent; the reply is then left to Exchange. Ends our
    // side of the connection if nothing is to follow.
    bool send(std::string_view reply);

    // Call afterwards, on the request's thread:
    unsigned status() const { return status_; }
    bool closes() const { return closes_; } // no other request follows
    std::size_t sent() const { return sent_; }
    Clock::time_point when() const { return when_; }                                 // it was sent
    std::string_view rest() const { return std::string_view(bytes_).substr(sent_); } // what the socket did not take

private:
    DirectReply(int socket, const RequestHead& head, const Options& options, const std::atomic<bool>& draining)
        : socket_(socket), head_request_(head.method == "HEAD"), closes_(!head.keep_alive), options_(&options),
          draining_(&draining) {}
    int socket_;
    bool head_request_, closes_;
    const Options* options_;
    const std::atomic<bool>* draining_;
    std::string bytes_;
    std::size_t sent_ = 0;
    Clock::time_point when_;
    unsigned status_ = 0;
};

} // namespace kvmserver::http
