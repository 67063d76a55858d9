// The requests that the daemon makes itself (invoke.cpp). A thread waits for each.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/http/upstream.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// The pool's answer to one such request, for the waiting thread. Public members may be read once wait_until() has
// returned true.
class OwnRequest final : public http::RequestWaiter {
public:
    void connected(tinykvm::UniqueFd with) override;
    void connected_for_rest(tinykvm::UniqueFd with) override;
    void replied(std::string with, http::Closing closing, http::Sender sender) override;
    void failed(request::Problem why) override;
    bool abandoned() const override;

    // Returns false if there was no answer by then, or if it was cut off before.
    bool wait_until(std::chrono::steady_clock::time_point deadline);
    int socket() const { return socket_.get(); } // the connection to the program; -1: none
    void close();
    // Ends the wait or the connection now. Any thread.
    void cut();
    bool cut_off() const;

    std::optional<request::Problem> problem;
    std::optional<std::string> reply; // all that the program sent
    bool opening_delivered = false;   // the program has the request: send nothing to `socket`

private:
    template <class Text>
    void answer(const Text& text);
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    tinykvm::UniqueFd socket_;
    bool answered_ = false, abandoned_ = false, cut_ = false;
};

// All requests of this kind that are running.
class OwnRequests {
public:
    // Registers one request while it exists.
    struct Running {
        explicit Running(OwnRequests& all);
        ~Running();
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;
        OwnRequests& among;
        const std::shared_ptr<OwnRequest> request;
    };
    // Waits up to `patience` for running requests, then cuts off those that are left and all later ones.
    void end(std::chrono::milliseconds patience);

private:
    std::mutex mutex_;
    std::condition_variable none_;
    std::vector<std::shared_ptr<OwnRequest>> all_;
    bool ended_ = false;
};

} // namespace kvmserver::daemon
