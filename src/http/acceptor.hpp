// Accepts the connections of one listening socket and deals them to the workers.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <boost/asio/posix/basic_stream_descriptor.hpp>

#include "src/http/connection.hpp"
#include "src/http/ids.hpp"
#include "src/http/net.hpp"
#include "src/http/tls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::http {

// The certificate for new TLS connections. Locked once per connection, never per request.
class CurrentCertificate {
public:
    void set(TlsContext context) {
        const std::lock_guard lock(mutex_);
        context_ = std::move(context);
    }
    TlsContext get() const {
        const std::lock_guard lock(mutex_);
        return context_;
    }

private:
    mutable std::mutex mutex_;
    TlsContext context_;
};

class Acceptor : public std::enable_shared_from_this<Acceptor> {
public:
    using Deal = std::function<void(Accepted)>;
    // `certificate` is null for a listener without TLS. `observer` may be null.
    Acceptor(asio::io_context& io, tinykvm::UniqueFd socket, const CurrentCertificate* certificate,
             ConnectionTable& table, bool spare_unix, Observer* observer, Deal deal);
    void start();
    // Any thread. Calls `then` on the thread of the io_context once nothing more is accepted. Who is in the queue until
    // then is accepted.
    void stop(std::function<void()> then);
    bool stopped() const { return stopped_.load(std::memory_order_acquire); }

private:
    void wait();
    void accept_some();
    // At most so many connections. Returns false if there are no descriptors or no memory for one.
    bool accept(int most);
    bool admit(const sockaddr_storage& address, Accepted& client);
    void rest();

    asio::posix::basic_stream_descriptor<Executor> socket_;
    Timer timer_;
    const CurrentCertificate* certificate_;
    ConnectionTable& table_;
    const bool spare_unix_;
    Observer* const observer_;
    Ids ids_;
    Deal deal_;
    std::atomic<bool> stopped_ = false;
};

} // namespace kvmserver::http
