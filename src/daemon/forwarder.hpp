// Connects requests to the server that has a function now: functions that were migrated.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include "src/http/upstream.hpp"
#include "src/request/problem.hpp"
#include "src/store/functions/moved.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// A request that was forwarded has this header, and is not forwarded again.
inline constexpr const char* kForwardedHeader = "Kvmserver-Forwarded";

class Forwarder {
public:
    Forwarder();
    ~Forwarder(); // requests that are not connected yet fail
    Forwarder(const Forwarder&) = delete;
    Forwarder& operator=(const Forwarder&) = delete;

    // Connects to the other daemon's public listener, on a thread of this object, and gives the waiter the connection
    // or not_forwarded. `of` has what the problem's text needs, except for the reason. Any thread.
    void forward(const store::Moved& moved, std::shared_ptr<http::RequestWaiter> waiter, request::Circumstances of);

private:
    struct Wanted {
        std::string url, ca_file;
        std::shared_ptr<http::RequestWaiter> waiter;
        request::Circumstances of;
        std::uint64_t deadline_ns = 0;
        tinykvm::UniqueFd socket{}; // connecting
    };
    struct Address {
        sockaddr_storage bytes{};
        socklen_t size = 0;
    };
    struct Known { // a name's address
        Address address;
        std::uint64_t until_ns = 0;
    };
    void loop();
    void begin(Wanted wanted);
    void look();
    Address address_of(const std::string& url); // throws UserError
    void connected(Wanted wanted);
    static void fail(Wanted wanted, const std::string& why);
    const http::TlsContext& trusted(const std::string& ca_file); // throws UserError

    tinykvm::UniqueFd wake_;
    std::mutex mutex_; // guards the following
    std::deque<Wanted> wanted_;
    bool ending_ = false;
    // Of the thread:
    std::vector<Wanted> connecting_;
    std::map<std::string, Known> known_;
    std::map<std::string, http::TlsContext> trusted_; // by the file
    std::thread thread_;
};

} // namespace kvmserver::daemon
