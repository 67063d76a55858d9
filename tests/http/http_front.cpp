// http_front BACKEND_PORT [OPTION=VALUE...]: the front with a program at 127.0.0.1:BACKEND_PORT.
//
// Prints "listening PORT [TLS_PORT]", then one line of JSON a request. SIGTERM drains and ends, SIGHUP reloads the
// certificate. Options: see set_option(). Paths that the upstream knows: /-/refuse, /-/slow, /-/never, and /-/killed,
// whose connection the upstream says was cut by a time limit.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "src/http/front.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using tinykvm::UniqueFd;

namespace {

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// Of both families, at all addresses.
UniqueFd listen_anywhere(int& actual) {
    UniqueFd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    socklen_t size = sizeof address;
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd.get(), 512) != 0)
        tinykvm::throw_errno("listen");
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
    actual = ntohs(address.sin6_port);
    return fd;
}

UniqueFd listen_on(int port, int& actual) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address = loopback(port);
    socklen_t size = sizeof address;
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd.get(), 512) != 0)
        tinykvm::throw_errno("listen");
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
    actual = ntohs(address.sin_port);
    return fd;
}

struct Machine : http::Lease {
    bool killed = false;
    std::optional<request::Problem> failure() const override {
        if (!killed)
            return std::nullopt;
        return request::Problem{request::Outcome::no_progress, 504, "time-limit", "The program took too long.",
                                "Raise --max-request-time.",   {}};
    }
};

class Backend : public http::Upstream {
public:
    explicit Backend(int port) : port_(port) {}
    void set_unix(const std::string& path) { unix_ = path; }

    std::unique_ptr<http::Lease> connect(const http::RequestInfo& request,
                                         std::shared_ptr<http::RequestWaiter> waiter) override {
        auto machine = std::make_unique<Machine>();
        machine->killed = request.head.path == "/-/killed";
        ask(request, std::move(waiter));
        return machine;
    }

private:
    void ask(const http::RequestInfo& request, std::shared_ptr<http::RequestWaiter> waiter) {
        if (request.head.path == "/-/refuse")
            return waiter->failed(
                {request::Outcome::queue_full, 503, "no-machine", "All machines are busy.", "Try again.", 7});
        if (request.head.path == "/-/never") {
            waiter->on_abandon = [] { std::puts("{\"abandoned\": true}"), std::fflush(stdout); };
            never_ = waiter;
            return;
        }
        if (request.head.path == "/-/slow") {
            std::thread([this, waiter] {
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
                answer(*waiter);
            }).detach();
            return;
        }
        answer(*waiter);
    }

    // Loopback connects at once or not at all, so this may block.
    UniqueFd open() {
        sockaddr_storage storage{};
        socklen_t size = sizeof(sockaddr_in);
        if (unix_.empty()) {
            const sockaddr_in address = loopback(port_);
            std::memcpy(&storage, &address, sizeof address);
        } else {
            sockaddr_un address{};
            address.sun_family = AF_UNIX;
            std::strncpy(address.sun_path, unix_.c_str(), sizeof address.sun_path - 1);
            std::memcpy(&storage, &address, sizeof address);
            size = sizeof address;
        }
        UniqueFd fd(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0)
            fd.reset();
        return fd;
    }
    void answer(http::Waiter& waiter) {
        UniqueFd fd = open();
        if (!fd)
            return waiter.failed({request::Outcome::not_restored,
                                  502,
                                  "no-backend",
                                  "The backend does not accept connections.",
                                  "",
                                  {}});
        waiter.connected(std::move(fd));
    }

    int port_;
    std::string unix_;
    std::shared_ptr<http::Waiter> never_;
};

class Log : public http::Observer {
public:
    void finished(const http::RequestRecord& r) override {
        const std::lock_guard lock(mutex_);
        std::printf("{\"method\": \"%.*s\", \"status\": %u, \"outcome\": \"%s\", \"bytes_in\": %llu, "
                    "\"bytes_out\": %llu, \"queue_us\": %llu, \"exec_us\": %llu, \"total_us\": %llu, \"ip\": \"%.*s\", "
                    "\"id\": \"%.*s\", \"trace\": \"%.*s\"}\n",
                    int(r.method.size()), r.method.data(), r.status, request::log_word(r.outcome).data(),
                    static_cast<unsigned long long>(r.bytes_in), static_cast<unsigned long long>(r.bytes_out),
                    static_cast<unsigned long long>(r.queue_us), static_cast<unsigned long long>(r.exec_us),
                    static_cast<unsigned long long>(r.total_us), int(r.client_ip.size()), r.client_ip.data(),
                    int(r.request_id.size()), r.request_id.data(), int(r.traceparent.size()), r.traceparent.data());
        std::fflush(stdout);
    }

    void refused(http::Refusal why) override {
        const std::lock_guard lock(mutex_);
        std::printf("{\"refused\": \"%s\"}\n", http::to_string(why).data());
        std::fflush(stdout);
    }

private:
    std::mutex mutex_;
};

struct Setup {
    http::Options options;
    std::string certificate, key, unix_backend;
    int port = 0;
    bool quiet = false, any_address = false;
};

void set_option(Setup& setup, const std::string& name, const std::string& value) {
    const auto time = [&] { return http::Options::Time(std::atoll(value.c_str())); };
    http::Options& o = setup.options;
    if (name == "threads")
        o.threads = static_cast<unsigned>(std::atoi(value.c_str()));
    else if (name == "port")
        setup.port = std::atoi(value.c_str());
    else if (name == "cert")
        setup.certificate = value;
    else if (name == "key")
        setup.key = value;
    else if (name == "unix")
        setup.unix_backend = value;
    else if (name == "quiet")
        setup.quiet = true;
    else if (name == "header")
        o.header_timeout = time();
    else if (name == "idle")
        o.idle_timeout = time();
    else if (name == "connect")
        o.connect_timeout = time();
    else if (name == "progress")
        o.progress_timeout = time();
    else if (name == "tunnel")
        o.tunnel_timeout = time();
    else if (name == "any-address")
        setup.any_address = true;
    else if (name == "max-connections")
        o.max_connections = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "per-client")
        o.max_per_client = std::strtoull(value.c_str(), nullptr, 10), o.spare_loopback = false;
    else if (name == "min-rate")
        o.min_rate = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "rate-window")
        o.min_rate_window = time();
    else if (name == "max-body")
        o.max_body = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "trace")
        o.trace_share = 1;
    else if (name == "forwarded")
        o.forwarded_headers = true;
    else if (name == "half-close")
        o.half_close_is_alive = true;
    else
        std::fprintf(stderr, "no option %s\n", name.c_str()), std::exit(2);
}

} // namespace

int main(int count, char** words) {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGTERM, SIGINT, SIGHUP})
        sigaddset(&signals, number);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signal(SIGPIPE, SIG_IGN);

    Setup setup;
    for (int i = 2; i < count; ++i) {
        const std::string word = words[i];
        const std::size_t equals = word.find('=');
        set_option(setup, word.substr(0, equals), equals == std::string::npos ? "" : word.substr(equals + 1));
    }
    Backend backend(count > 1 ? std::atoi(words[1]) : 0);
    backend.set_unix(setup.unix_backend);
    Log log;
    http::Front front(setup.options, backend, setup.quiet ? nullptr : &log);
    int port = 0, tls_port = 0;
    front.add_listener(setup.any_address ? listen_anywhere(port) : listen_on(setup.port, port));
    if (!setup.certificate.empty()) {
        front.use_certificate(setup.certificate, setup.key);
        front.add_listener(listen_on(0, tls_port), true);
    }
    front.start();
    std::printf("listening %d %d\n", port, tls_port);
    std::fflush(stdout);
    for (;;) {
        int number = 0;
        sigwait(&signals, &number);
        if (number != SIGHUP)
            break;
        try {
            front.use_certificate(setup.certificate, setup.key);
            std::puts("{\"reloaded\": true}");
        } catch (const tinykvm::UserError& error) {
            std::printf("{\"reloaded\": false, \"why\": \"%s\"}\n", error.what());
        }
        std::fflush(stdout);
    }
    front.drain();
    const bool drained = front.wait_drained(std::chrono::seconds(5));
    const http::Counters counters = front.counters();
    std::printf("{\"drained\": %s, \"connections\": %llu, \"requests\": %llu, \"in_flight\": %llu}\n",
                drained ? "true" : "false", static_cast<unsigned long long>(counters.connections),
                static_cast<unsigned long long>(counters.requests),
                static_cast<unsigned long long>(counters.in_flight));
}
