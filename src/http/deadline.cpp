#include "src/http/deadline.hpp"

namespace kvmserver::http {

void Deadline::end() {
    at_ = armed_ = Clock::time_point::max();
    owner_.reset();
    timer_.cancel();
}

void Deadline::arm() {
    std::shared_ptr<Owner> owner = owner_.lock();
    if (!owner)
        return;
    armed_ = at_;
    timer_.expires_at(at_); // cancels the previous wait
    timer_.async_wait([this, owner = std::move(owner)](error_code error) {
        if (!error)
            went_off();
    });
}

void Deadline::went_off() {
    if (armed_ > Clock::now())
        return; // re-armed meanwhile: the new wait is pending
    armed_ = Clock::time_point::max();
    if (at_ > Clock::now()) {
        if (at_ != Clock::time_point::max())
            arm();
        return;
    }
    at_ = Clock::time_point::max();
    if (const std::shared_ptr<Owner> owner = owner_.lock())
        owner->deadline_passed();
}

} // namespace kvmserver::http
