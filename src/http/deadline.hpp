// A time that is moved at every read and write. Moving it later is a store: the timer is only set anew when it goes
// off.
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
    // `owner` lives at least as long as the deadline; it is kept alive while the timer runs.
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
