#include "src/http/acceptor.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include <boost/asio/post.hpp>

#include "src/http/problem.hpp"

namespace kvmserver::http {
namespace {

// "unix:UID:PID" of the peer, from the kernel.
std::string peer_of(int socket) {
    ucred who{};
    socklen_t size = sizeof who;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return "unix";
    return "unix:" + std::to_string(who.uid) + ":" + std::to_string(who.pid);
}

} // namespace

Acceptor::Acceptor(asio::io_context& io, tinykvm::UniqueFd socket, const CurrentCertificate* certificate,
                   ConnectionTable& table, bool spare_unix, Observer* observer, Deal deal)
    : socket_(io), timer_(io), certificate_(certificate), table_(table), spare_unix_(spare_unix), observer_(observer),
      deal_(std::move(deal)) {
    socket_.assign(socket.get());
    socket.release();
    socket_.native_non_blocking(true);
    const int on = 1; // the sockets of its connections begin with it
    (void)::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // fails for a Unix socket
}

void Acceptor::start() { wait(); }

void Acceptor::stop(std::function<void()> then) {
    asio::post(socket_.get_executor(), [self = shared_from_this(), then = std::move(then)] {
        constexpr int kLongestQueue = 4096; // somaxconn
        (void)self->accept(kLongestQueue);  // closing would reset connections that clients take for accepted
        error_code ignored;
        self->socket_.close(ignored);
        self->timer_.cancel();
        self->stopped_.store(true, std::memory_order_release);
        then();
    });
}

void Acceptor::wait() {
    socket_.async_wait(socket_.wait_read, [self = shared_from_this()](error_code error) {
        if (!error)
            self->accept_some();
    });
}

void Acceptor::accept_some() {
    constexpr int kAtOnce = 64; // so that a flood of clients does not starve this thread's connections
    if (accept(kAtOnce))
        wait();
    else
        rest();
}

bool Acceptor::accept(int most) {
    for (int i = 0; i < most && socket_.is_open(); ++i) {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        Accepted client;
        client.socket.reset(accept4(socket_.native_handle(), reinterpret_cast<sockaddr*>(&address), &size,
                                    SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!client.socket) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            return errno == EAGAIN || errno == EWOULDBLOCK;
        }
        client.tls = certificate_ ? certificate_->get() : nullptr;
        if (certificate_ && !client.tls)
            continue; // there is no certificate, so no reply to this client is possible
        if (!admit(address, client))
            continue;
        client.ip = address.ss_family == AF_UNIX ? peer_of(client.socket.get()) : ip_text(address);
        deal_(std::move(client));
    }
    return true;
}

// Returns false if there is no place for the client. It gets a 503, except over TLS, where that would take a handshake.
bool Acceptor::admit(const sockaddr_storage& address, Accepted& client) {
    if (spare_unix_ && address.ss_family == AF_UNIX)
        return true;
    Refusal why{};
    client.place = table_.admit(client_key(address), why);
    if (client.place)
        return true;
    if (observer_)
        observer_->refused(why);
    if (certificate_)
        return false;
    const Problem problem{Outcome::refused,
                          503,
                          std::string(to_string(why)),
                          why == Refusal::too_many_of_client ? "This client has too many connections."
                                                             : "There are too many connections.",
                          "Close some, or try again.",
                          1};
    const std::string reply = problem_reply(problem, ids_.request_id(), true, false);
    (void)!::send(client.socket.get(), reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(client.socket.get(), SHUT_WR);
    char scratch[4096]; // closing with unread data would reset the connection, and the reply might be lost
    (void)!::recv(client.socket.get(), scratch, sizeof scratch, MSG_DONTWAIT);
    return false;
}

// No descriptors or memory left: the clients stay in the backlog, and an immediate retry would only spin.
void Acceptor::rest() {
    table_.shed();
    timer_.expires_after(std::chrono::milliseconds(50));
    timer_.async_wait([self = shared_from_this()](error_code error) {
        if (!error)
            self->accept_some();
    });
}

} // namespace kvmserver::http
