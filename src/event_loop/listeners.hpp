// The real listening sockets behind the program's.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/event_loop/incoming_connection.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/linux/policy.hpp"
#include "tinykvm/linux/unix_name.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

// Accepts one connection without blocking. Returns one without an fd, and sets errno, if there is none.
IncomingConnection accept_client(int listening, std::uint32_t listener);

// Parses "host:port", ":port", "[::1]:80" or "unix:/path"; a host is "localhost" or numeric. Throws UserError(usage).
SocketAddress parse_listen_address(const std::string& text);
// Binds a socket to a "unix:" address and replaces a dead socket file there. Returns 0 or -errno.
int bind_unix(int socket, const SocketAddress& address, tinykvm::UnixName& name);
// Parses "fd:3", a descriptor that this process inherited. Throws UserError(usage).
int parse_listen_fd(const std::string& text);
std::string to_string(const sockaddr* address, socklen_t bytes);

// The program's bound and listening sockets, by the guest's listener number. The process has one object for the image's
// sockets. A request machine has its own for sockets that an invocation opens. Thread-safe.
class Listeners {
public:
    // Where the first listener really listens, instead of the address that the program asked for.
    void override_first(const SocketAddress& address) { override_ = address; }
    // The first listener is this inherited socket. Throws UserError(usage) if it does not listen.
    void override_first(tinykvm::UniqueFd listening);
    // Building a snapshot: addresses are recorded, and nothing listens.
    void set_dry(bool dry) { dry_ = dry; }
    // Decides where Unix sockets may be bound by path; without a policy they are only recorded. It must outlive this.
    void set_policy(const tinykvm::Policy* policy) { policy_ = policy; }
    // Copies the current permissions of Unix socket files into the listeners' flags.
    void note_modes(std::vector<tinykvm::ListenerState>& listeners) const;

    int bind(tinykvm::ListenerState& socket); // 0 or -errno; sets the address's port to the real one
    int listen(tinykvm::ListenerState& socket, int backlog);
    void close(std::uint32_t id); // bound or listening
    tinykvm::BoundSocket take_bound(std::uint32_t id);
    void close_all();
    // Opens the listeners of a snapshot. Throws UserError that names the address.
    void open(const std::vector<tinykvm::ListenerState>& states);

    // The socket that would listen at this address, if nothing really listens (set_dry). One that listens at all
    // addresses is found at those of this host's loopback interface only.
    struct DryListener {
        std::uint32_t id;
        std::uint32_t family;
    };
    std::optional<DryListener> dry_listener_at(const sockaddr* address, socklen_t bytes) const;

    struct Listening {
        std::uint32_t id;
        int fd;
    };
    std::vector<Listening> all() const;
    std::vector<std::string> addresses() const; // "127.0.0.1:8080"

private:
    bool dry_conflict(const tinykvm::ListenerState& socket) const;
    struct Open { // the name is destroyed before the socket: keep the order
        std::uint32_t id = 0;
        tinykvm::UniqueFd fd;
        std::string path; // of a Unix socket
        tinykvm::UnixName name;
    };
    static void put(std::vector<Open>& sockets, Open fresh);
    int open_socket(tinykvm::ListenerState& socket, Open& out);
    int bind_path(const std::string& path, const tinykvm::ListenerState& socket, Open& out) const;
    mutable std::mutex mutex_;
    std::vector<Open> bound_;
    std::vector<Open> open_;
    std::optional<SocketAddress> override_;
    tinykvm::UniqueFd given_;
    const tinykvm::Policy* policy_ = nullptr;
    bool dry_ = false;
    std::vector<tinykvm::ListenerState> dry_listening_; // what would listen
    bool replace_dead_ = false;
};

} // namespace kvmserver
