// A deadline that moves with every read and write. Moving it later costs only a store: the timer is re-armed when it
// expires.
#pragma once
#include <memory>

#include "src/http/net.hpp"

namespace kvmserver::http {

class Deadline {
public:
    class Owner {
    public:
        virtual void deadline_passed() = 0;

    protected:
        ~Owner() = default;
    };
    explicit Deadline(asio::io_context& io) : timer_(io) {}
    // `owner` must outlive the deadline. It is kept alive while the timer runs.
    void begin(std::weak_ptr<Owner> owner) { owner_ = std::move(owner); }
    void set_in(std::chrono::milliseconds time) { // 0: never
        set(time.count() == 0 ? Clock::time_point::max() : Clock::now() + time);
    }
    void end();

private:
    void set(Clock::time_point at) {
        at_ = at;
        if (at < armed_)
            arm();
    }
    void arm();
    void went_off();

    Timer timer_;
    Clock::time_point at_ = Clock::time_point::max();
    Clock::time_point armed_ = Clock::time_point::max();
    std::weak_ptr<Owner> owner_;
};

} // namespace kvmserver::http
