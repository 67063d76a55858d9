// The HTTP/1.1 front: keeps client connections alive and gives each request a connection of its own to a program.
//
// The program gets the bytes that the client sent, with `Connection: close`. Requests and replies that do not follow
// the grammar exactly are refused (see request_head.hpp, reply_head.hpp, chunked.hpp). A refusal closes the connection.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/http/observer.hpp"
#include "src/http/options.hpp"
#include "src/http/passthrough.hpp"
#include "src/http/tls.hpp"
#include "src/http/upstream.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::http {

class Front {
public:
    // Both references must outlive the front. `observer` may be null.
    Front(const Options& options, Upstream& upstream, Observer* observer);
    // Cuts all remaining connections.
    ~Front();
    Front(const Front&) = delete;
    Front& operator=(const Front&) = delete;

    // Reads PEM files. May be called again at any time: new connections use the new pair. Throws UserError that names
    // the file; the old pair then stays in use.
    void use_certificate(const std::string& chain_file, const std::string& key_file);
    // The same with what load_certificate() or by_host() returned.
    void use_certificate(TlsContext context);
    // Hands over TLS connections for some hosts as they arrive. Call before start().
    void pass_through(Passthrough passthrough);
    // Adds a listening socket (TCP or AF_UNIX). Call before start().
    void add_listener(tinykvm::UniqueFd socket, bool tls = false);
    void start();

    // Accepts no more connections and closes idle ones. The others close after their current request.
    void drain();
    // Waits until no connection is left. Returns false if there are some after `patience`.
    bool wait_drained(std::chrono::milliseconds patience);

    Counters counters() const;
    // Where connections are counted, for other servers of this process that share the limits.
    ConnectionTable& places();

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace kvmserver::http
