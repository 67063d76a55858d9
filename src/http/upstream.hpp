// Who serves the requests: given the head of one, provides a connected socket to a program for this request alone, or
// the program's whole reply.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/http/request_head.hpp"
#include "src/request/outcome.hpp"
#include "src/request/problem.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::http {

using request::Closing;
using request::Problem;

// What an upstream knows of one request, from connect() on. The front destroys it on one of its threads when the
// request is over and the socket is closed.
class Lease {
public:
    virtual ~Lease() = default;
    // Asked, on a thread of the front, when the program's connection ended: why, if that was not the program's own
    // will (a time limit, a crash). The client then gets this problem, or a reply that is visibly cut off.
    virtual std::optional<Problem> failure() const { return std::nullopt; }
    // When a program had the request, on std::chrono::steady_clock; 0: when it was answered.
    virtual std::uint64_t began_ns() const { return 0; }
};

struct RequestInfo {
    const RequestHead& head; // with host and path, by which to choose
    std::string_view request_id;
    std::string_view traceparent; // what the program is sent; may be ""
    std::string_view client_ip;   // of a Unix socket "unix:UID"
    bool secure;                  // over TLS
    // What the program is sent first: the head, and of the body what has arrived. The front sends it over the socket,
    // unless the Upstream does it in another way (RequestWaiter).
    std::string_view opening;
    bool more_follows; // than the opening: of the body, or after an upgrade
};

// Where the answer goes. Any thread may answer, once; what comes after the first answer is dropped.
class Waiter {
public:
    virtual ~Waiter() = default;
    // A stream socket (AF_UNIX, AF_INET, AF_INET6), connected. Bytes already in it are part of the reply.
    virtual void connected(tinykvm::UniqueFd socket) = 0;
    virtual void failed(Problem problem) = 0;
    // The client is gone or the time is over: an answer is no longer wanted (one that comes all the same is
    // dropped). Any thread may ask.
    virtual bool abandoned() const = 0;
    // Called at most once, on a thread of the front, when that happens before an answer. Set it within connect().
    std::function<void()> on_abandon;
};

enum class Sender { front, caller };

// Who waits within connect(): the Upstream may have given the request's opening to a program itself.
class RequestWaiter : public Waiter {
public:
    // The rest of the request, if there is any, goes over this socket.
    virtual void connected_for_rest(tinykvm::UniqueFd socket) = 0;
    // All that the program said before it closed its connection, or reset it. Sender::caller: this thread has nothing
    // better to do than to send it to the client, who then waits for one thread less.
    virtual void replied(std::string reply, Closing closing, Sender sender) = 0;
};

class Upstream {
public:
    virtual ~Upstream() = default;
    // Called on a thread of the front and must not block it. `request` is valid during the call alone: copy what is
    // needed later. Answers through `waiter` now or later. Calls for different connections overlap.
    // The request has no timeout here but Options::connect_timeout. What is returned may be null.
    virtual std::unique_ptr<Lease> connect(const RequestInfo& request, std::shared_ptr<RequestWaiter> waiter) = 0;
};

} // namespace kvmserver::http
