#include "src/daemon/own_requests.hpp"

#include <sys/socket.h>

namespace kvmserver::daemon {

void OwnRequest::connected(tinykvm::UniqueFd with, std::unique_ptr<http::Lease> holding) {
    answer(std::move(with), std::nullopt, std::move(holding));
}

void OwnRequest::failed(request::Problem why, std::unique_ptr<http::Lease> holding) {
    answer({}, std::move(why), std::move(holding));
}

void OwnRequest::answer(tinykvm::UniqueFd with, std::optional<request::Problem> why,
                        std::unique_ptr<http::Lease> holding) {
    const std::lock_guard lock(mutex_);
    if (answered_ || abandoned_)
        return;
    answered_ = true;
    socket_ = std::move(with);
    problem = std::move(why);
    lease = std::move(holding);
    changed_.notify_all();
}

bool OwnRequest::abandoned() const {
    const std::lock_guard lock(mutex_);
    return abandoned_;
}

bool OwnRequest::wait_until(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [this] { return answered_ || cut_; });
    abandoned_ = !answered_ || cut_;
    return !abandoned_;
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
