// Carries an Upstream's answer from any thread to the waiting request, without a lock.
//
// Usually that wakes the request's thread. It need not when the client has the reply already (`direct`): the client
// mostly sends its next request at once, or closes, which wakes the thread anyway. Then it asks with `look()`, and some
// time later in any case (LateLook). So each request costs one thread switch less.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

#include "src/http/direct_reply.hpp"
#include "src/http/net.hpp"
#include "src/http/upstream.hpp"

namespace kvmserver::http {

class Answer final : public RequestWaiter, public std::enable_shared_from_this<Answer> {
public:
    explicit Answer(asio::io_context& io) : io_(io), arrived_event_(std::in_place, io) {}

    void connected(tinykvm::UniqueFd socket) override;
    void forwarded(tinykvm::UniqueFd socket, const Forwarding& how) override;
    void connected_for_rest(tinykvm::UniqueFd socket) override;
    void replied(std::string reply, Closing closing, Sender sender) override;
    void failed(Problem problem) override;
    void add_to_reply(const std::string& lines) override;
    bool abandoned() const override { return (state_.load(std::memory_order_acquire) & kState) == unwanted; }

    // The rest is for the request's own thread.
    //
    // Returns true when there is an answer, or false if `interrupt` was called first. After false an Upstream may keep
    // this object for longer than the front lives.
    bool wait(Yield& yield);
    void interrupt();
    // Whether the client has the reply. The wait then ends. Otherwise the answer gets a notice, from now on.
    bool look();

    std::optional<DirectReply> direct; // set before the wait if a direct reply is allowed
    bool may_be_unannounced = false;   // the same, if somebody looks

    std::string more_lines; // of the reply's head

    std::optional<Forwarding> forwarding; // of `socket`

    tinykvm::UniqueFd socket; // empty if there is a `reply`, or it was sent
    bool opening_delivered = false;
    bool sent = false; // the reply was sent through `direct`
    std::optional<std::string> reply;
    Closing closing = Closing::clean; // how the program closed after `reply`
    std::optional<Problem> problem;

private:
    bool wait_for_either(Yield& yield);
    enum State : std::uint8_t {
        waiting,
        answered,    // a notice follows, unless it becomes `unannounced`
        unannounced, // the client has all of the reply; no notice follows
        unwanted,    // the request no longer waits
        kState = 3,
        kNotice = 4, // a bit of its own: a notice is wanted in any case
    };
    bool settle();
    bool leave_unannounced();
    void notify();

    asio::io_context& io_;
    std::optional<Event> arrived_event_;        // reset when wait() has returned
    std::atomic<std::uint8_t> state_ = waiting; // of State
    bool arrived_ = false, interrupted_ = false;
};

} // namespace kvmserver::http
