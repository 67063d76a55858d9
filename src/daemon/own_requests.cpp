#include "src/daemon/own_requests.hpp"

#include <sys/socket.h>

namespace kvmserver::daemon {

template <class Text>
void OwnRequest::answer(const Text& text) {
    const std::lock_guard lock(mutex_);
    if (answered_ || abandoned_)
        return;
    answered_ = true;
    text();
    changed_.notify_all();
}

void OwnRequest::connected(tinykvm::UniqueFd with) {
    answer([&] { socket_ = std::move(with); });
}

void OwnRequest::connected_for_rest(tinykvm::UniqueFd with) {
    answer([&] {
        socket_ = std::move(with);
        opening_delivered = true;
    });
}

void OwnRequest::replied(std::string with, http::Closing, http::Sender) {
    answer([&] { reply = std::move(with); });
}

void OwnRequest::failed(request::Problem why) {
    answer([&] { problem = std::move(why); });
}

bool OwnRequest::abandoned() const {
    const std::lock_guard lock(mutex_);
    return abandoned_;
}

bool OwnRequest::wait_until(std::chrono::steady_clock::time_point deadline) {
    {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, deadline, [this] { return answered_ || cut_; });
        abandoned_ = !answered_ || cut_;
        if (!abandoned_)
            return true;
    }
    if (on_abandon)
        on_abandon();
    return false;
}

void OwnRequest::close() {
    const std::lock_guard lock(mutex_);
    socket_.reset();
}

void OwnRequest::cut() {
    const std::lock_guard lock(mutex_);
    cut_ = true;
    if (socket_)
        ::shutdown(socket_.get(), SHUT_RDWR);
    changed_.notify_all();
}

bool OwnRequest::cut_off() const {
    const std::lock_guard lock(mutex_);
    return cut_;
}

OwnRequests::Running::Running(OwnRequests& all) : among(all), request(std::make_shared<OwnRequest>()) {
    const std::lock_guard lock(among.mutex_);
    among.all_.push_back(request);
    if (among.ended_)
        request->cut();
}

OwnRequests::Running::~Running() {
    const std::lock_guard lock(among.mutex_);
    std::erase(among.all_, request);
    if (among.all_.empty())
        among.none_.notify_all();
}

void OwnRequests::end(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    none_.wait_for(lock, patience, [this] { return all_.empty(); });
    ended_ = true;
    for (const auto& request : all_)
        request->cut();
}

} // namespace kvmserver::daemon
