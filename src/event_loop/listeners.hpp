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

// Takes one connection without waiting; without an fd, and with errno set, when there is none.
IncomingConnection accept_client(int listening, std::uint32_t listener);

// "host:port", ":port", "[::1]:80", "unix:/path" to an address; throws UserError(usage). Names are "localhost" or
// numeric.
SocketAddress parse_listen_address(const std::string& text);
// Binds a socket to a Unix address of that kind: one that nobody listens at any more is replaced. 0 or -errno.
int bind_unix(int socket, const SocketAddress& address, tinykvm::UnixName& name);
// "fd:3", a descriptor that this process inherited; throws UserError(usage).
int parse_listen_fd(const std::string& text);
std::string to_string(const sockaddr* address, socklen_t bytes);

// Sockets that were bound and that listen, by the guest's listener number. The program's own are in one that the
// process has; a request machine, which is reset, has one of its own for what an invocation opens. Thread-safe.
class Listeners {
public:
    // Where the first listener really listens instead of where the program asked.
    void override_first(const SocketAddress& address) { override_ = address; }
    // A socket of whoever started us, which listens already; throws UserError(usage) when it is none.
    void override_first(tinykvm::UniqueFd listening);
    // Without sockets: addresses are only remembered (building a snapshot).
    void set_dry(bool dry) { dry_ = dry; }
    // Where Unix sockets may be bound by path; without it they are only remembered. It must outlive this.
    void set_policy(const tinykvm::Policy* policy) { policy_ = policy; }
    // The names' permissions as the program has set them since, into the listeners' flags.
    void note_modes(std::vector<tinykvm::ListenerState>& listeners) const;

    int bind(tinykvm::ListenerState& socket); // 0 or -errno; the address is replaced by the bound one
    int listen(tinykvm::ListenerState& socket, int backlog);
    void close(std::uint32_t id); // bound or listening
    tinykvm::BoundSocket take_bound(std::uint32_t id);
    void close_all();
    // Opens what a snapshot listened on; throws UserError naming the address.
    void open(const std::vector<tinykvm::ListenerState>& states);

    struct Listening {
        std::uint32_t id;
        int fd;
    };
    std::vector<Listening> all() const;
    std::vector<std::string> addresses() const; // "127.0.0.1:8080"

private:
    bool dry_conflict(const tinykvm::ListenerState& socket) const;
    struct Open { // members in this order: the name goes first
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
