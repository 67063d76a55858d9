// The admin listener: clients of the API, on a Unix socket and, with tokens, on TCP.
//
// What the public listener does for functions, the same front (src/http) does here: strict requests, limits,
// TLS, and clients that are slow cost a connection and no more. Requests are answered by a thread each, so
// many at once.
//
//     store::Store store(path);           // not Control::store(): the daemon must see changes as another's
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
    std::filesystem::path socket; // Unix socket: for this user and root, without a token; "": none
    std::string tcp;              // "HOST:PORT", for those with a token; "": none
    std::string certificate, key; // PEM files: TLS on TCP; without them TCP is for loopback addresses only
    unsigned most_requests = 64;  // at once by TCP, and as many by the socket; more get 503
};

class Listener {
public:
    // Listens, and answers from start() on. `api` outlives this object. Throws UserError (usage, conflict,
    // not_permitted) and HostError.
    Listener(Api& api, const ListenerOptions& options);
    // Ends what is still there; waits for the threads of requests.
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    void start();
    // Accepts no more; replies without an end (logs that are followed) end soon.
    void drain();
    // Also waits that long at most for requests in flight, and then cuts their connections. False: some are
    // at work all the same, and the destructor would wait for them.
    bool stop(std::chrono::milliseconds patience);
    // The certificate's files again. Throws UserError; then the old one stays in use. Not after stop().
    void reload_certificate();
    // "unix:/PATH", "https://127.0.0.1:9000", or both with a space between them: for people.
    std::string address() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace kvmserver::admin
