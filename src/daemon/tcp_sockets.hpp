// The listening sockets of TCP functions.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "src/common/listen_address.hpp"
#include "src/daemon/routing.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// A bound and listening socket. Throws UserError that names the address: conflict if it is taken.
tinykvm::UniqueFd listen_at(const ListenAddress& address);

// Thread-safe.
class TcpSockets {
public:
    // `inherited` were handed in by a predecessor. `note` gets a line about each address that cannot be had.
    TcpSockets(std::vector<tinykvm::UniqueFd> inherited, std::function<void(const std::string&)> note);

    // Makes sure that the function can listen there, before a deploy. With `keep` the sockets are kept for the next
    // want(), for a few seconds. Throws store::Conflict (another function or process has it) or UserError.
    void claim(const std::string& function, const std::vector<ListenAddress>& addresses, bool keep);
    // Opens what is missing and closes all others. `table` is called under the lock, so that of two concurrent calls
    // the later one knows the newer table. Returns whether the open ones may have changed.
    bool want(const std::function<TcpTable()>& table);
    // Tries again what could not be had, and drops what was claimed in vain. To be called often.
    bool retry();

    struct Open {
        std::shared_ptr<const tinykvm::UniqueFd> socket; // others may hold it for a moment after it was closed here
        std::shared_ptr<const Destination> destination;
    };
    std::map<ListenAddress, Open> open() const;
    void close_all(); // for good

private:
    using Clock = std::chrono::steady_clock;
    struct Claimed {
        std::string function; // "": whoever wants it, of a predecessor
        tinykvm::UniqueFd socket;
        Clock::time_point until;
    };
    bool open_missing();
    tinykvm::UniqueFd take(const ListenAddress& address, const std::string& function);

    const std::function<void(const std::string&)> note_;
    mutable std::mutex mutex_; // guards the following
    std::map<ListenAddress, Claimed> claimed_;
    TcpTable wanted_;
    std::map<ListenAddress, Open> open_;
    std::map<ListenAddress, std::string> faults_; // as noted
    Clock::time_point next_try_{};
    bool closed_ = false;
};

} // namespace kvmserver::daemon
