#include "src/ops/health.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "src/ops/manifest.hpp"
#include "src/store/stored_snapshot.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::ops {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLimit = 30s; // for restoring and answering

// Why it is not healthy.
class Sick : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

tinykvm::UniqueFd stream_socket() {
    tinykvm::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        tinykvm::throw_errno("socket");
    return fd;
}

// A port of this host's own, held: the child is given the socket.
struct Listening {
    tinykvm::UniqueFd fd = stream_socket();
    std::uint16_t port;

    Listening() {
        sockaddr_in address = loopback(0);
        socklen_t length = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        if (::bind(fd.get(), any, length) < 0 || ::listen(fd.get(), 16) < 0 ||
            ::getsockname(fd.get(), any, &length) < 0)
            tinykvm::throw_errno("listen on 127.0.0.1");
        port = ntohs(address.sin_port);
    }
};

class Probe {
public:
    Probe(Child& child, int output, std::uint16_t port) : child_(child), output_(output), port_(port) {}

    void check(const std::string& path) {
        wait_loaded();
        connect();
        if (!path.empty())
            ask(path);
        require_running();
    }

private:
    void require_running() {
        if (const auto status = child_.poll())
            throw Sick(fmt::format("it ended with status {}", *status));
    }

    // A connection that nobody serves yet would be accepted all the same.
    void wait_loaded() {
        while (text_of(output_).find("' loaded.") == std::string::npos) {
            require_running();
            if (Clock::now() > end_)
                throw Sick("it was not restored in time");
            std::this_thread::sleep_for(2ms);
        }
    }

    void wait_for(short what) {
        for (;;) {
            const auto left =
                std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
            pollfd wanted{socket_.get(), what, 0};
            const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
            if (ready > 0)
                return;
            if (ready == 0)
                throw Sick(fmt::format("no answer within {} s", kLimit.count()));
            if (errno != EINTR)
                tinykvm::throw_errno("poll");
        }
    }

    void connect() {
        socket_ = stream_socket();
        const sockaddr_in address = loopback(port_);
        if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
            return;
        if (errno != EINPROGRESS)
            throw Sick(fmt::format("it accepts no connection: {}", std::strerror(errno)));
        wait_for(POLLOUT);
        int error = 0;
        socklen_t length = sizeof error;
        ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0)
            throw Sick(fmt::format("it accepts no connection: {}", std::strerror(error)));
    }

    void ask(const std::string& path) {
        const std::string request =
            fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
        if (::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(request.size())) // a new socket's buffer holds it
            throw Sick("it takes no request");
        // The status of the first answer that is not an interim one ("HTTP/1.1 200 OK").
        std::string answer;
        for (char buffer[4096];;) {
            wait_for(POLLIN);
            const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
            if (count < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            if (count <= 0)
                throw Sick(fmt::format("GET {}: the connection ended without an answer", path));
            answer.append(buffer, static_cast<std::size_t>(count));
            while (answer.size() >= 12 && answer.starts_with("HTTP/1.") && answer[9] == '1') {
                const auto over = answer.find("\r\n\r\n");
                if (over == answer.npos)
                    break;
                answer.erase(0, over + 4);
            }
            if (answer.size() >= 12 && answer[9] != '1')
                break;
            if (answer.size() > 65536)
                throw Sick(fmt::format("GET {}: the answer is not HTTP", path));
        }
        const bool digits = answer.find_first_not_of("0123456789", 9) >= 12;
        if (!answer.starts_with("HTTP/1.") || answer[8] != ' ' || !digits)
            throw Sick(fmt::format("GET {}: the answer is not HTTP", path));
        if (answer[9] >= '5')
            throw Sick(fmt::format("GET {}: status {}", path, answer.substr(9, 3)));
    }

    Child& child_;
    int output_;
    std::uint16_t port_;
    tinykvm::UniqueFd socket_;
    Clock::time_point end_ = Clock::now() + kLimit;
};

} // namespace

Unhealthy::Unhealthy(const std::string& why, std::string output)
    : UserError(tinykvm::ExitCode::failure, fmt::format("the new version does not go live: {}", why)),
      output_(std::move(output)) {}

void require_health(store::Store& store, const store::Digest& snapshot, const Trial& trial) {
    const ManifestFacts facts = manifest_facts(trial.manifest);
    // In memory: nothing is left behind, whatever happens.
    const auto file = memory_file("kvmserver-snapshot");
    store::StoredSnapshot(store, snapshot).export_to(file.get());
    const auto output = memory_file("kvmserver-output");
    Listening listening;
    const int keep[] = {file.get(), listening.fd.get()};
    // No options but the snapshot's own: neither those of the manifest nor of a file that lies here.
    Child child({trial.executable, "snaprun", "-e", "-c", "/dev/null", "--cache", "none", "--listen",
                 fmt::format("fd:{}", listening.fd.get()), fmt::format("/proc/self/fd/{}", file.get())},
                "/", output.get(), keep);
    listening.fd.reset(); // so that it closes with the child
    try {
        Probe(child, output.get(), listening.port).check(facts.health);
    } catch (const Sick& error) {
        throw Unhealthy(error.what(), text_of(output.get()));
    }
}

} // namespace kvmserver::ops
