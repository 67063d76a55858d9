#include "src/daemon/cache_service.hpp"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <exception>

#include "src/common/clock.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kRefillNs = 3600ull * 1'000'000'000; // of the bytes that a version may hand over
constexpr std::uint64_t kTidyBytes = 256 << 20;              // make room at once after this many new bytes
constexpr int kTidyMs = 1000;                                // otherwise when there was no request for this long
constexpr std::uint64_t kWake = 0;                           // not a connection's id

void add(int epoll, std::uint64_t id, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        throw_errno("epoll_ctl");
}

// Closes on another thread: closing an unexpected file may block for as long as its maker likes (a socket with
// SO_LINGER, a FUSE file).
void close_elsewhere(UniqueFd socket, protocol::CacheRequest request) {
    try {
        std::thread([socket = std::move(socket), request = std::move(request)] {}).detach();
    } catch (const std::system_error&) { // no thread: closed here after all
    }
}

// Whether the last answer was received; only then the next is sent.
bool has_taken_its_answer(int socket) {
    int bytes = 0;
    return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

} // namespace

CacheService::CacheService(FolderCache folder, std::function<void(const std::string&)> report)
    : folder_(std::move(folder)), report_(std::move(report)), epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!epoll_ || !wake_)
        throw_errno("epoll");
    add(epoll_.get(), kWake, wake_.get());
    thread_ = std::thread([this] { loop(); });
}

CacheService::~CacheService() {
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
}

UniqueFd CacheService::connect(const CacheGuest& guest) {
    if (!folder_.usable())
        return {};
    auto [ours, theirs] = protocol::make_pair();
    const int half = protocol::kSendBytes / 2; // Linux doubles it (socket(7))
    if (::setsockopt(theirs.get(), SOL_SOCKET, SO_SNDBUF, &half, sizeof half) != 0)
        throw_errno("setsockopt");
    const std::lock_guard lock(mutex_);
    auto connection = std::make_unique<Connection>(Connection{
        std::move(ours), guest.name, protocol::CacheSession(folder_.of_tenant(guest.tenant), bytes_of(guest)),
        protocol::Allowance(kMaxNames, kMaxNames * 1'000'000'000 / kNamesASecond, now_ns())});
    const std::uint64_t id = next_id_++;
    const int socket = connection->socket.get();
    connections_.emplace(id, std::move(connection));
    try {
        add(epoll_.get(), id, socket);
    } catch (const HostError&) {
        connections_.erase(id);
        throw;
    }
    return std::move(theirs);
}

// The mutex is held.
std::shared_ptr<protocol::Allowance> CacheService::bytes_of(const CacheGuest& guest) {
    auto& bytes = bytes_[guest.snapshot];
    if (!bytes)
        bytes = std::make_shared<protocol::Allowance>(guest.max_bytes, kRefillNs, now_ns());
    return bytes;
}

void CacheService::loop() {
    for (;;) {
        std::array<epoll_event, 64> events;
        const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), patience(now_ns()));
        for (int i = 0; i < count; ++i) {
            const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
            if (id == kWake)
                return;
            Connection* connection;
            {
                const std::lock_guard lock(mutex_);
                const auto found = connections_.find(id);
                connection = found == connections_.end() ? nullptr : found->second.get();
            }
            if (connection)
                serve_one(id, *connection);
        }
        listen_again(now_ns());
        if (made_ >= kTidyBytes || (made_ > 0 && count == 0))
            tidy();
    }
}

void CacheService::serve_one(std::uint64_t id, Connection& connection) {
    protocol::CacheRequest request;
    switch (protocol::receive_request(connection.socket.get(), request)) {
    case protocol::Came::nothing: return;
    case protocol::Came::end: return forget(id, connection);
    case protocol::Came::nonsense: return drop(id, connection, "sent an invalid request", std::move(request));
    case protocol::Came::request: break;
    }
    const std::uint64_t now = now_ns();
    try {
        protocol::CacheSession::Outcome outcome = connection.session.handle(request, now);
        if (!outcome.broken.empty())
            return drop(id, connection, outcome.broken, std::move(request));
        made_ += outcome.kept;
        if (outcome.answer) {
            if (!has_taken_its_answer(connection.socket.get()))
                return drop(id, connection, "does not read its answers", std::move(request));
            // Descriptors may be refused (ETOOMANYREFS): then answer that there are no copies.
            if (!protocol::send_answer(connection.socket.get(), *outcome.answer) &&
                !protocol::send_answer(connection.socket.get(), std::vector<UniqueFd>(outcome.answer->size())))
                return forget(id, connection);
        }
    } catch (const std::exception&) { // no memory, or a disk error: the process does without
        return forget(id, connection);
    }
    if (!connection.names.take(request.entries.size(), now)) { // this request was still served
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
        throttled_.emplace(now + connection.names.wait_ns(request.entries.size(), now), id);
    }
}

void CacheService::drop(std::uint64_t id, Connection& connection, const std::string& why,
                        protocol::CacheRequest request) {
    if (report_)
        report_(fmt::format("{}: its process violates the cache protocol: it {}; it gets no more copies from the cache",
                            connection.name, why));
    // Unread messages are dropped with the socket.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
    close_elsewhere(std::move(connection.socket), std::move(request));
    forget(id, connection);
}

void CacheService::forget(std::uint64_t id, Connection&) {
    const std::lock_guard lock(mutex_);
    connections_.erase(id);
}

void CacheService::listen_again(std::uint64_t now_ns) {
    while (!throttled_.empty() && throttled_.begin()->first <= now_ns) {
        const std::uint64_t id = throttled_.begin()->second;
        throttled_.erase(throttled_.begin());
        const std::lock_guard lock(mutex_);
        if (const auto found = connections_.find(id); found != connections_.end()) {
            try {
                add(epoll_.get(), id, found->second->socket.get());
            } catch (const HostError&) {
                connections_.erase(found);
            }
        }
    }
}

// Time-out for epoll_wait in milliseconds.
int CacheService::patience(std::uint64_t now_ns) const {
    int wait = made_ > 0 ? kTidyMs : -1;
    if (!throttled_.empty()) {
        const std::uint64_t then = throttled_.begin()->first;
        const int until =
            then <= now_ns ? 0 : static_cast<int>(std::min<std::uint64_t>((then - now_ns) / 1'000'000 + 1, kTidyMs));
        wait = wait < 0 ? until : std::min(wait, until);
    }
    return wait;
}

void CacheService::tidy() {
    made_ = 0;
    folder_.make_room();
    const std::lock_guard lock(mutex_);
    // A full bucket equals a new one.
    std::erase_if(bytes_, [now = now_ns()](const auto& entry) {
        return entry.second.use_count() == 1 && entry.second->full(now);
    });
}

} // namespace kvmserver::daemon
