// A whole reply that goes to the client from the thread that has it, before the request's own thread hears of it: the
// client waits for one change of threads less. The plain case alone; the rest is Exchange's.
#pragma once
#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "src/http/options.hpp"
#include "src/http/request_head.hpp"

namespace kvmserver::http {

class DirectReply {
public:
    // Where nothing stands against it: the connection goes on after the request, which has all arrived.
    // `socket`, `options` and `draining` are the request's, which keeps them, and writes nothing, until it has been
    // told of the answer.
    static std::optional<DirectReply> allowed(int socket, const RequestHead& head, const Options& options,
                                              const std::atomic<bool>& draining);

    // On any thread, once, without waiting. False: nothing was sent, the reply is for Exchange.
    bool send(std::string_view reply);

    // Afterwards, on the request's thread:
    unsigned status() const { return status_; }
    std::size_t sent() const { return sent_; }
    std::string_view rest() const { return std::string_view(bytes_).substr(sent_); } // that the socket did not take

private:
    DirectReply(int socket, bool head_request, const Options& options, const std::atomic<bool>& draining)
        : socket_(socket), head_request_(head_request), options_(&options), draining_(&draining) {}
    int socket_;
    bool head_request_;
    const Options* options_;
    const std::atomic<bool>* draining_;
    std::string bytes_;
    std::size_t sent_ = 0;
    unsigned status_ = 0;
};

} // namespace kvmserver::http
