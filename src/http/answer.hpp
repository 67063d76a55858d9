// An Upstream's answer on its way to the request that waits for it, from any thread, without a lock.
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
    void connected_for_rest(tinykvm::UniqueFd socket) override;
    void replied(std::string reply, Closing closing, Sender sender) override;
    void failed(Problem problem) override;
    bool abandoned() const override { return state_.load(std::memory_order_acquire) == State::abandoned; }

    // The rest is for the request's own thread.
    // Returns when there is an answer, or false when `interrupt` was called before there was one. After it an
    // Upstream may keep this object for longer than the front lives.
    bool wait(Yield& yield);
    void interrupt();

    std::optional<DirectReply> direct; // set before the wait, where it is allowed

    tinykvm::UniqueFd socket; // none with a `reply`
    bool opening_delivered = false;
    bool sent = false; // by `direct`
    std::optional<std::string> reply;
    Closing closing = Closing::clean; // of the reply
    std::optional<Problem> problem;

private:
    bool wait_for_either(Yield& yield);
    enum class State { waiting, answered, abandoned };
    bool settle();
    void notify();

    asio::io_context& io_;
    std::optional<Event> arrived_event_; // until wait() has returned
    std::atomic<State> state_ = State::waiting;
    bool arrived_ = false, interrupted_ = false;
};

} // namespace kvmserver::http
