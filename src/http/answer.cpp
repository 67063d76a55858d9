#include "src/http/answer.hpp"

#include <boost/asio/dispatch.hpp>

namespace kvmserver::http {

void Answer::connected(tinykvm::UniqueFd with, std::unique_ptr<Lease> holding) {
    if (!claim())
        return;
    socket = std::move(with);
    lease = std::move(holding);
    publish();
}

void Answer::connected_for_rest(tinykvm::UniqueFd with, std::unique_ptr<Lease> holding) {
    if (!claim())
        return;
    socket = std::move(with);
    opening_delivered = true;
    lease = std::move(holding);
    publish();
}

void Answer::replied(std::string with, Closing by, std::unique_ptr<Lease> holding) {
    if (!claim())
        return;
    reply = std::move(with);
    closing = by;
    opening_delivered = true;
    lease = std::move(holding);
    publish();
}

void Answer::failed(Problem why, std::unique_ptr<Lease> holding) {
    if (!claim())
        return;
    problem = std::move(why);
    lease = std::move(holding);
    publish();
}

// After the exchange the request waits until the notice is here, so io_ still exists when it is sent.
void Answer::publish() {
    if (state_.exchange(State::answered, std::memory_order_acq_rel) == State::abandoned) {
        socket.reset();
        lease.reset();
        return;
    }
    asio::dispatch(io_, [self = shared_from_this()] {
        self->arrived_ = true;
        if (self->arrived_event_)
            self->arrived_event_->notify();
    });
}

void Answer::interrupt() {
    interrupted_ = true;
    if (arrived_event_)
        arrived_event_->notify();
}

bool Answer::wait(Yield& yield) {
    const bool answered = arrived_ || (arrived_event_ && wait_for_either(yield));
    arrived_event_.reset();
    return answered;
}

bool Answer::wait_for_either(Yield& yield) {
    while (!arrived_ && !interrupted_)
        arrived_event_->wait(yield);
    if (arrived_)
        return true;
    if (state_.exchange(State::abandoned, std::memory_order_acq_rel) == State::answered) {
        while (!arrived_)
            arrived_event_->wait(yield);
        return true;
    }
    if (on_abandon)
        on_abandon();
    return false;
}

} // namespace kvmserver::http
