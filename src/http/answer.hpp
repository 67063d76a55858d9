// Carries an Upstream's answer from any thread to the waiting request, without a lock.
#pragma once
#include <atomic>
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
    bool abandoned() const override { return state_.load(std::memory_order_acquire) == State::abandoned; }

    // The rest is for the request's own thread.
    //
    // Returns true when there is an answer, or false if `interrupt` was called first. After false an Upstream may keep
    // this object for longer than the front lives.
    bool wait(Yield& yield);
    void interrupt();

    std::optional<DirectReply> direct; // set before the wait if a direct reply is allowed

    std::string more_lines; // of the reply's head

    std::optional<Forwarding> forwarding; // of `socket`

    tinykvm::UniqueFd socket; // empty if there is a `reply`
    bool opening_delivered = false;
    bool sent = false; // the reply was sent through `direct`
    std::optional<std::string> reply;
    Closing closing = Closing::clean; // how the program closed after `reply`
    std::optional<Problem> problem;

private:
    bool wait_for_either(Yield& yield);
    enum class State { waiting, answered, abandoned };
    bool settle();
    void notify();

    asio::io_context& io_;
    std::optional<Event> arrived_event_; // reset when wait() has returned
    std::atomic<State> state_ = State::waiting;
    bool arrived_ = false, interrupted_ = false;
};

} // namespace kvmserver::http
