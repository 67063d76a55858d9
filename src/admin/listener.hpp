// The admin listener: serves the API on a Unix socket and, with tokens, on TCP.
//
// It uses the same HTTP front (src/http) as the public listener: strict parsing, limits, TLS, and a slow client costs
// only a connection. Each request is answered by a thread of its own.
//
//     store::Store store(path);           // not Control::store(): the daemon only notices changes of other connections
//     OpenStore source(path, store);
//     Api api(source, {.control = &daemon});
//     Listener listener(api, {.socket = default_socket(store)});
//     listener.start();
//     ...
//     listener.stop(std::chrono::seconds(10));
#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "src/admin/api.hpp"

namespace kvmserver::admin {

struct ListenerOptions {
    std::filesystem::path socket; // path; for this user and root, without a token; "": none
    std::string tcp;              // "HOST:PORT", for callers with a token; "": none
    std::string certificate, key; // PEM files: TLS on TCP; without them only loopback addresses are allowed
    unsigned max_requests = 64;   // at once by TCP, and as many by the socket; further ones get 503
};

class Listener {
public:
    // Opens the sockets; start() begins to answer. `api` must outlive this object. Throws UserError (usage, conflict,
    // not_permitted) and HostError.
    Listener(Api& api, const ListenerOptions& options);
    // Cuts all connections and waits for the request threads.
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    void start();
    // Accepts no more connections and ends endless replies (followed logs) soon.
    void drain();
    // Drains, waits up to `patience` for requests in flight, then cuts their connections. Returns false if some are
    // still running; the destructor would wait for them.
    bool stop(std::chrono::milliseconds patience);
    // Reads the certificate's files again. Throws UserError; the old certificate then stays in use. Not after stop().
    void reload_certificate();
    // "unix:/PATH", "https://127.0.0.1:9000", or both with a space between them; for people.
    std::string address() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace kvmserver::admin
