// The interface to whatever serves the requests. For the head of a request it provides a connected socket to a program,
// for this request only, or the program's complete reply.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/http/request_head.hpp"
#include "src/http/tls.hpp"
#include "src/request/outcome.hpp"
#include "src/request/problem.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::http {

using request::Closing;
using request::Problem;

// The upstream's data about one request, from connect() on. The front destroys it on one of its threads when the
// request is over and the socket is closed.
class Lease {
public:
    virtual ~Lease() = default;
    // Called on a thread of the front when the program's connection has ended. Returns the reason if the program did
    // not end it itself (a time limit, a crash). The client then gets this problem, or a reply that is visibly
    // truncated.
    virtual std::optional<Problem> failure() const { return std::nullopt; }
    // A command that shows a person what the program printed during the request; "": there is none.
    virtual std::string where_to_look() const { return {}; }
    // When a program got the request, by std::chrono::steady_clock; 0: when the upstream answered.
    virtual std::uint64_t began_ns() const { return 0; }
};

struct RequestInfo {
    const RequestHead& head; // host and path are for routing
    std::string_view request_id;
    std::string_view traceparent; // sent to the program; may be ""
    bool traced;                  // its span is recorded
    std::string_view client_ip;   // "unix:UID:PID" for a Unix socket
    bool secure;                  // over TLS
    // The first bytes for the program: the head, and what has arrived of the body. The front sends them over the
    // socket, unless the Upstream delivers them in another way (RequestWaiter).
    std::string_view opening;
    bool more_follows; // after the opening: more of the body, or bytes after an upgrade
};

// How a request goes to another server.
struct Forwarding {
    std::string lines; // header lines to add, each with its CRLF
    TlsContext tls{};  // null: without TLS
    std::string host;  // that its certificate must be for if the request names none
    // The client's reply if there can be no TLS.
    std::function<Problem(const std::string& why)> no_tls;
};

// Receives the answer. Any thread may answer; answers after the first are ignored.
class Waiter {
public:
    virtual ~Waiter() = default;
    // A connected stream socket (AF_UNIX, AF_INET, AF_INET6). Bytes that it already holds are part of the reply.
    virtual void connected(tinykvm::UniqueFd socket) = 0;
    virtual void failed(Problem problem) = 0;
    // Whether an answer is no longer wanted: the client is gone or the time is over. A late answer is ignored. Any
    // thread.
    virtual bool abandoned() const = 0;
    // Called at most once, on a thread of the front, if that happens before an answer. Set it within connect().
    std::function<void()> on_abandon;
};

// Which thread sends a complete reply to the client.
enum class Sender { front, caller };

// The waiter in connect(): the Upstream may itself have delivered the request's opening to a program.
class RequestWaiter : public Waiter {
public:
    // The opening was delivered; this socket is for the rest of the request.
    virtual void connected_for_rest(tinykvm::UniqueFd socket) = 0;
    // The program's complete reply, and how it closed the connection. Sender::caller: this thread may send the reply to
    // the client itself, which saves the client a thread switch.
    virtual void replied(std::string reply, Closing closing, Sender sender) = 0;
    // A connection to another server, which is to get the request.
    virtual void forwarded(tinykvm::UniqueFd socket, const Forwarding& how) {
        if (how.tls) // only the front can
            failed(how.no_tls("not from here: it needs TLS"));
        else
            connected(std::move(socket));
    }
    // Header lines, each with its CRLF, that the client gets with the program's reply. Only within connect(), before
    // any answer. A waiter that takes replies as they are ignores them.
    virtual void add_to_reply(const std::string&) {}
};

class Upstream {
public:
    virtual ~Upstream() = default;
    // Called on a thread of the front and must not block. `request` is valid only during the call: copy what is needed
    // later. Answers through `waiter`, now or later. Calls for different connections overlap. Options::connect_timeout
    // is the only time limit. May return null.
    virtual std::unique_ptr<Lease> connect(const RequestInfo& request, std::shared_ptr<RequestWaiter> waiter) = 0;
};

} // namespace kvmserver::http
