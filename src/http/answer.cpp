#include "src/http/answer.hpp"

#include <new>

#include <boost/asio/dispatch.hpp>

namespace kvmserver::http {

void Answer::connected(tinykvm::UniqueFd with) {
    if (!settle())
        return;
    socket = std::move(with);
    notify();
}

void Answer::forwarded(tinykvm::UniqueFd with, const Forwarding& how) {
    if (!settle())
        return;
    socket = std::move(with);
    forwarding = how;
    notify();
}

void Answer::connected_for_rest(tinykvm::UniqueFd with) {
    if (!settle())
        return;
    socket = std::move(with);
    opening_delivered = true;
    notify();
}

void Answer::replied(std::string with, Closing by, Sender sender) {
    if (!settle())
        return;
    try {
        sent = sender == Sender::caller && direct && direct->send(with);
    } catch (const std::bad_alloc&) { // nothing was sent yet; the request still waits for notify()
    }
    if (!sent)
        reply = std::move(with);
    closing = by;
    opening_delivered = true;
    if (!(sent && direct->rest().empty() && may_be_unannounced && leave_unannounced()))
        notify();
}

void Answer::failed(Problem why) {
    if (!settle())
        return;
    problem = std::move(why);
    notify();
}

void Answer::add_to_reply(const std::string& lines) {
    more_lines = lines;
    direct.reset(); // which is for replies as they are
}

// Claims the answer. Returns false if there is an answer already or none is wanted. After true the request waits for
// notify() or leave_unannounced(), so its client's socket, its options and io_ stay valid.
bool Answer::settle() {
    std::uint8_t now = state_.load(std::memory_order_relaxed);
    while ((now & kState) == waiting)
        if (state_.compare_exchange_weak(now, answered | (now & kNotice), std::memory_order_acq_rel))
            return true;
    return false;
}

// After true the request may be over at any time, and with it io_.
bool Answer::leave_unannounced() {
    std::uint8_t expected = answered;
    return state_.compare_exchange_strong(expected, unannounced, std::memory_order_acq_rel);
}

void Answer::notify() {
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

bool Answer::look() {
    if (arrived_ || !arrived_event_)
        return arrived_ && sent;
    if ((state_.fetch_or(kNotice, std::memory_order_acq_rel) & kState) != unannounced)
        return false;
    arrived_ = true;
    arrived_event_->notify();
    return true;
}

bool Answer::wait(Yield& yield) {
    const bool is_there = arrived_ || (arrived_event_ && wait_for_either(yield));
    arrived_event_.reset();
    return is_there;
}

bool Answer::wait_for_either(Yield& yield) {
    while (!arrived_ && !interrupted_)
        arrived_event_->wait(yield);
    if (arrived_ || (state_.fetch_or(kNotice, std::memory_order_acq_rel) & kState) == unannounced)
        return true;
    std::uint8_t expected = waiting | kNotice;
    if (state_.compare_exchange_strong(expected, unwanted, std::memory_order_acq_rel)) {
        if (on_abandon)
            on_abandon();
        return false;
    }
    while (!arrived_)
        arrived_event_->wait(yield);
    return true;
}

} // namespace kvmserver::http
