#include "src/daemon/forwarder.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/common/clock.hpp"
#include "src/store/functions/moved.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kForwarderSecond = 1'000'000'000;
constexpr std::uint64_t kToConnect = 5 * kForwarderSecond;
constexpr std::uint64_t kNameIsGood = 10 * kForwarderSecond; // before it is looked up again

} // namespace

Forwarder::Forwarder() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_)
        throw_errno("eventfd");
    thread_ = std::thread([this] { loop(); });
}

Forwarder::~Forwarder() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
    for (Wanted& wanted : wanted_)
        fail(std::move(wanted), "the server is stopping");
    for (Wanted& wanted : connecting_)
        fail(std::move(wanted), "the server is stopping");
}

void Forwarder::forward(const store::Moved& moved, std::shared_ptr<http::RequestWaiter> waiter,
                        request::Circumstances of) {
    {
        const std::lock_guard lock(mutex_);
        wanted_.push_back({moved.forward, moved.ca_file, std::move(waiter), std::move(of), now_ns() + kToConnect});
    }
    ::eventfd_write(wake_.get(), 1);
}

void Forwarder::loop() {
    std::vector<pollfd> fds;
    for (;;) {
        fds.assign(1, {wake_.get(), POLLIN, 0});
        std::uint64_t deadline = now_ns() + 60 * kForwarderSecond;
        for (const Wanted& wanted : connecting_) {
            fds.push_back({wanted.socket.get(), POLLOUT, 0});
            deadline = std::min(deadline, wanted.deadline_ns);
        }
        const std::uint64_t now = now_ns();
        ::poll(fds.data(), fds.size(), deadline > now ? static_cast<int>((deadline - now) / 1'000'000) + 1 : 0);
        eventfd_t count = 0;
        ::eventfd_read(wake_.get(), &count);
        std::deque<Wanted> begun;
        {
            const std::lock_guard lock(mutex_);
            if (ending_)
                return;
            begun.swap(wanted_);
        }
        look();
        for (Wanted& wanted : begun)
            begin(std::move(wanted));
    }
}

// What has been connected, or has failed.
void Forwarder::look() {
    std::vector<Wanted> still;
    for (Wanted& wanted : std::exchange(connecting_, {})) {
        pollfd one{wanted.socket.get(), POLLOUT, 0};
        int error = 0;
        socklen_t size = sizeof error;
        if (wanted.waiter->abandoned())
            continue;
        if (::poll(&one, 1, 0) == 0) {
            if (now_ns() < wanted.deadline_ns)
                still.push_back(std::move(wanted));
            else
                fail(std::move(wanted), fmt::format("no connection within {} s", kToConnect / kForwarderSecond));
            continue;
        }
        if (::getsockopt(wanted.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
        if (error == 0)
            connected(std::move(wanted));
        else
            fail(std::move(wanted), std::strerror(error));
    }
    connecting_ = std::move(still);
}

void Forwarder::begin(Wanted wanted) {
    try {
        const Address address = address_of(wanted.url);
        wanted.socket = UniqueFd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!wanted.socket)
            return fail(std::move(wanted), std::strerror(errno));
        // A host that vanishes is noticed: the machines' limits of time end nothing here.
        const auto set = [&](int level, int option, int value) {
            ::setsockopt(wanted.socket.get(), level, option, &value, sizeof value);
        };
        set(IPPROTO_TCP, TCP_NODELAY, 1);
        set(SOL_SOCKET, SO_KEEPALIVE, 1);
        set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
        set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
        set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
        if (::connect(wanted.socket.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) == 0)
            return connected(std::move(wanted));
        if (errno != EINPROGRESS)
            return fail(std::move(wanted), std::strerror(errno));
        connecting_.push_back(std::move(wanted));
    } catch (const std::exception& error) {
        fail(std::move(wanted), error.what());
    }
}

Forwarder::Address Forwarder::address_of(const std::string& url) {
    const std::uint64_t now = now_ns();
    Known& known = known_[url];
    if (now < known.until_ns)
        return known.address;
    const store::ForwardAddress wanted = store::forward_address(url);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(wanted.host.c_str(), std::to_string(wanted.port).c_str(), &hints, &found))
        throw UserError(ExitCode::unreachable, fmt::format("{}: {}", wanted.host, ::gai_strerror(error)));
    known.address.size = found->ai_addrlen;
    std::memcpy(&known.address.bytes, found->ai_addr, found->ai_addrlen);
    ::freeaddrinfo(found);
    known.until_ns = now + kNameIsGood;
    return known.address;
}

const http::TlsContext& Forwarder::trusted(const std::string& ca_file) {
    http::TlsContext& context = trusted_[ca_file];
    if (!context)
        context = http::client_context(ca_file);
    return context;
}

void Forwarder::connected(Wanted wanted) {
    http::Forwarding how;
    how.lines = fmt::format("{}: {}\r\n", kForwardedHeader, wanted.of.function);
    const store::ForwardAddress address = store::forward_address(wanted.url);
    try {
        if (address.tls)
            how.tls = trusted(wanted.ca_file);
    } catch (const UserError& error) {
        return fail(std::move(wanted), error.what());
    }
    how.host = address.host;
    how.no_tls = [of = wanted.of, url = wanted.url](const std::string& why) mutable {
        of.reason = fmt::format("{}: {}", url, why);
        return problem_for(request::Outcome::not_forwarded, of);
    };
    wanted.waiter->forwarded(std::move(wanted.socket), how);
}

void Forwarder::fail(Wanted wanted, const std::string& why) {
    wanted.of.reason = fmt::format("{}: {}", wanted.url, why);
    wanted.waiter->failed(problem_for(request::Outcome::not_forwarded, wanted.of));
}

} // namespace kvmserver::daemon
