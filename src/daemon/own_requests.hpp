// The requests that the daemon makes itself (invoke.cpp): each has a thread that waits for it.
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

// What the pool of workers answers, for the thread that waits for it. What is public is to be read once
// wait_until() has returned true.
class OwnRequest final : public http::RequestWaiter {
public:
    void connected(tinykvm::UniqueFd with) override;
    void connected_for_rest(tinykvm::UniqueFd with) override;
    void replied(std::string with, http::Closing closing, http::Sender sender) override;
    void failed(request::Problem why) override;
    bool abandoned() const override;

    // False: no answer until then, or cut off before.
    bool wait_until(std::chrono::steady_clock::time_point deadline);
    int socket() const { return socket_.get(); } // the connection to the program; -1: there is none
    void close();
    // From any thread: the wait, or the connection, ends now.
    void cut();
    bool cut_off() const;

    std::optional<request::Problem> problem;
    std::optional<std::string> reply; // all that the program said
    bool opening_delivered = false;   // nothing is to be sent to `socket`

private:
    template <class Text>
    void answer(const Text& text);
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    tinykvm::UniqueFd socket_;
    bool answered_ = false, abandoned_ = false, cut_ = false;
};

class OwnRequests {
public:
    // One of them, for as long as it runs.
    struct Running {
        explicit Running(OwnRequests& all);
        ~Running();
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;
        OwnRequests& among;
        const std::shared_ptr<OwnRequest> request;
    };
    // Waits for those that run; those that still do then are cut off, and so is each that comes later.
    void end(std::chrono::milliseconds patience);

private:
    std::mutex mutex_;
    std::condition_variable none_;
    std::vector<std::shared_ptr<OwnRequest>> all_;
    bool ended_ = false;
};

} // namespace kvmserver::daemon
