#include "src/admin/listener.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "src/admin/address.hpp"
#include "src/admin/peer.hpp"
#include "src/admin/socket_exchange.hpp"
#include "src/http/front.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/stream_pair.hpp"

namespace kvmserver::admin {
namespace {

using tinykvm::UniqueFd;

http::Options front_options() {
    http::Options options;
    options.idle_timeout = http::Options::Time(60'000);
    // Trials of new versions, gc and verify are silent for long. What the client must send has its own limits
    // (SocketExchange).
    options.progress_timeout = http::Options::Time(1'800'000);
    options.half_close_is_alive = false;
    // For TCP. Requests are limited further by ListenerOptions::max_requests, since each takes a thread. Flooding TCP
    // must not lock out the users of this host.
    options.max_connections = 256;
    options.max_per_client = 128;
    options.spare_unix = true;
    options.min_rate = 32;
    return options;
}

} // namespace

class Listener::Impl final : private http::Upstream {
public:
    Impl(Api& api, const ListenerOptions& options)
        : api_(api), options_(options), front_(new http::Front(front_options(), *this, nullptr)) {
        const bool tls = !options.certificate.empty();
        if (tls != !options.key.empty())
            throw tinykvm::UserError(tinykvm::ExitCode::usage, "a certificate and its key go together: give both");
        if (tls)
            reload_certificate();
        if (!options.socket.empty()) {
            unix_.emplace(options.socket);
            front_->add_listener(unix_->take());
            address_ = "unix:" + options.socket.string();
        }
        if (!options.tcp.empty())
            add_tcp(tls);
    }

    ~Impl() override {
        front_.reset(); // ends the sockets that the request threads wait for
        std::unique_lock lock(mutex_);
        none_.wait(lock, [this] { return running_[0] + running_[1] == 0; });
    }

    void start() { front_->start(); }

    void drain() {
        api_.end_streams();
        front_->drain();
    }

    bool stop(std::chrono::milliseconds patience) {
        constexpr std::chrono::seconds at_least(1); // for the threads to notice that the socket is cut
        const auto end = std::chrono::steady_clock::now() + patience;
        drain();
        front_->wait_drained(patience);
        front_.reset();
        std::unique_lock lock(mutex_);
        return none_.wait_until(lock, std::max(end, std::chrono::steady_clock::now() + at_least),
                                [this] { return running_[0] + running_[1] == 0; });
    }

    void reload_certificate() {
        if (!options_.certificate.empty())
            front_->use_certificate(options_.certificate, options_.key);
    }

    const std::string& address() const { return address_; }

private:
    void add_tcp(bool tls) {
        const Address address = parse_address(options_.tcp);
        std::string actual;
        bool loopback = false;
        UniqueFd socket = listen_tcp(address, actual, loopback);
        if (!tls && !loopback)
            throw tinykvm::UserError(
                tinykvm::ExitCode::usage,
                fmt::format("{}: tokens would travel in the clear: give a certificate and its key, "
                            "or listen on 127.0.0.1",
                            options_.tcp));
        front_->add_listener(std::move(socket), tls);
        address_ += fmt::format("{}{}://{}", address_.empty() ? "" : " ", tls ? "https" : "http", actual);
    }

    std::unique_ptr<http::Lease> connect(const http::RequestInfo& request,
                                         std::shared_ptr<http::RequestWaiter> waiter) override {
        take(request, *waiter);
        return nullptr;
    }

    void take(const http::RequestInfo& request, http::Waiter& waiter) {
        Request asked;
        asked.id = request.request_id;
        asked.peer = trusted_user(request.client_ip);
        // Counted apart: flooding TCP must not lock out the users of this host.
        const bool local = asked.peer.has_value();
        {
            const std::lock_guard lock(mutex_);
            if (running_[local] >= options_.max_requests)
                return waiter.failed({request::Outcome::queue_full, 503, "busy",
                                      fmt::format("{} requests are being answered already", running_[local]),
                                      "try again", 1});
            ++running_[local];
        }
        auto [ours, theirs] = tinykvm::stream_pair();
        if (!ours) {
            ended(local);
            return waiter.failed({request::Outcome::no_socket, 503, "no-descriptors",
                                  "the server has no more descriptors", "try again", 1});
        }
        try {
            std::thread([this, socket = std::move(ours), asked = std::move(asked)]() mutable {
                answer(std::move(socket), asked);
                ended(asked.peer.has_value());
            }).detach();
        } catch (const std::system_error&) {
            ended(local);
            return waiter.failed(
                {request::Outcome::no_socket, 503, "no-threads", "the server has no more threads", "try again", 1});
        }
        waiter.connected(std::move(theirs));
    }

    void answer(UniqueFd socket, Request& request) {
        sigset_t all; // signals are for the process's own threads
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        SocketExchange exchange(std::move(socket));
        try {
            const std::string target = exchange.read_head(request);
            api_.serve(request, target, exchange);
            exchange.finish();
        } catch (const ClientGone&) {
        } catch (const std::exception& error) { // such as out of memory
            std::fprintf(stderr, "kvmserver: an API request is dropped: %s\n", error.what());
        }
    }

    void ended(bool local) {
        const std::lock_guard lock(mutex_);
        --running_[local];
        if (running_[0] + running_[1] == 0)
            none_.notify_all();
    }

    Api& api_;
    const ListenerOptions options_;
    std::string address_;
    std::mutex mutex_;
    std::condition_variable none_;
    unsigned running_[2] = {}; // requests by TCP, by the Unix socket
    std::optional<UnixListener> unix_;
    std::unique_ptr<http::Front> front_; // last: its threads use the members above
};

Listener::Listener(Api& api, const ListenerOptions& options) : impl_(std::make_unique<Impl>(api, options)) {}
Listener::~Listener() = default;
void Listener::start() { impl_->start(); }
void Listener::drain() { impl_->drain(); }
bool Listener::stop(std::chrono::milliseconds patience) { return impl_->stop(patience); }
void Listener::reload_certificate() { impl_->reload_certificate(); }
std::string Listener::address() const { return impl_->address(); }

} // namespace kvmserver::admin
