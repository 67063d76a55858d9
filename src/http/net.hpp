// Asio's types as the front uses them: one io_context per thread, with static executor types.
//
// A connection stays on the thread that it was dealt to, so requests need neither locks nor strands. Threads interact
// only when a new connection is dealt and when an Upstream answers from another thread.
#pragma once
#include <chrono>
#include <utility>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/spawn.hpp>

namespace kvmserver::http {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Executor = asio::io_context::executor_type;
using Yield = asio::basic_yield_context<Executor>;
using Socket = asio::basic_stream_socket<asio::generic::stream_protocol, Executor>;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Executor>;

// An event that one coroutine waits for and other code on the same thread signals. The waiter must check its condition
// before and after the wait: a notification without a waiter is lost.
class Event {
public:
    explicit Event(asio::io_context& io) : timer_(io) {}
    void wait(Yield& yield) {
        error_code ignored;
        timer_.expires_at(Timer::time_point::max());
        timer_.async_wait(yield[ignored]);
    }
    void notify() { timer_.cancel(); }

private:
    Timer timer_;
};

} // namespace kvmserver::http
