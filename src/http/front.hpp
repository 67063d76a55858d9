// The HTTP/1.1 front: keeps client connections, gives each request a connection of its own to a program.
//
// The program is sent the bytes that the client sent, with `Connection: close`. Requests and replies are refused
// unless they are exactly right (see request_head.hpp, reply_head.hpp, chunked.hpp); a refusal closes the connection.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "src/http/observer.hpp"
#include "src/http/options.hpp"
#include "src/http/upstream.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::http {

class Front {
public:
    // Both must outlive the front; `observer` may be null.
    Front(const Options& options, Upstream& upstream, Observer* observer);
    // Cuts what is still there.
    ~Front();
    Front(const Front&) = delete;
    Front& operator=(const Front&) = delete;

    // PEM files. Again at any time: later connections use the new pair. Throws UserError naming the file, and then
    // leaves the old pair in use.
    void use_certificate(const std::string& chain_file, const std::string& key_file);
    // A socket that listens (TCP or AF_UNIX). Before start().
    void add_listener(tinykvm::UniqueFd socket, bool tls = false);
    void start();

    // Accepts no more; idle connections close, requests in flight are finished and their connections then close.
    void drain();
    // Waits until no connection is left; false when there still are some after `patience`.
    bool wait_drained(std::chrono::milliseconds patience);

    Counters counters() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace kvmserver::http
