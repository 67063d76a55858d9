#include "src/daemon/storage_service.hpp"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kWakeUp = 0; // not a process's id

void watch_input(int epoll, std::uint64_t id, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        throw_errno("epoll_ctl");
}

// Whether it is what a process may hand over: other files could block this thread, or whoever closes them.
bool is_local_stream(int fd) {
    int type = 0, domain = 0;
    socklen_t bytes = sizeof type;
    return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM &&
           ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &(bytes = sizeof domain)) == 0 && domain == AF_UNIX;
}

bool reads_its_answers(int socket) {
    int bytes = 0;
    return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

} // namespace

StorageService::StorageService(Connect connect, std::function<void(const std::string&)> report)
    : connect_(std::move(connect)), report_(std::move(report)), epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!epoll_ || !wake_)
        throw_errno("epoll");
    watch_input(epoll_.get(), kWakeUp, wake_.get());
    thread_ = std::thread([this] { loop(); });
}

void StorageService::end() {
    if (!thread_.joinable())
        return;
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
    processes_.clear(); // nobody waits for an answer
}

UniqueFd StorageService::admit(const std::string& from, const std::string& storage) {
    auto [ours, theirs] = protocol::make_pair();
    auto process = std::make_unique<Process>();
    process->socket = std::move(ours);
    process->name = from;
    process->storage = storage;
    const std::lock_guard lock(mutex_);
    const std::uint64_t id = next_id_++;
    watch_input(epoll_.get(), id, process->socket.get());
    processes_.emplace(id, std::move(process));
    return std::move(theirs);
}

void StorageService::loop() {
    for (;;) {
        std::array<epoll_event, 64> events;
        const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
        for (int i = 0; i < count; ++i) {
            const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
            if (id == kWakeUp)
                return;
            Process* process;
            {
                const std::lock_guard lock(mutex_);
                const auto found = processes_.find(id);
                process = found == processes_.end() ? nullptr : found->second.get();
            }
            if (process)
                serve_one(id, *process);
        }
    }
}

void StorageService::serve_one(std::uint64_t id, Process& process) {
    protocol::StorageRequest request;
    switch (protocol::receive_storage_request(process.socket.get(), request)) {
    case protocol::StorageCame::nothing: return;
    case protocol::StorageCame::end: return forget(id);
    case protocol::StorageCame::nonsense: return drop(id, process, "sent an invalid request", std::move(request));
    case protocol::StorageCame::request: break;
    }
    if (request.stream && !is_local_stream(request.stream.get()))
        return drop(id, process, "handed over something that is no stream", std::move(request));
    if (!reads_its_answers(process.socket.get()))
        return drop(id, process, "does not read its answers", std::move(request));
    protocol::StorageAnswer answer{ECONNREFUSED, ""};
    if (!request.stream) {
        answer = {EMFILE, "the daemon has no free descriptor"};
    } else if (*process.open >= kMaxOpen) {
        answer = {EAGAIN, fmt::format("{} connections are open, which is the most", kMaxOpen)};
    } else {
        ++*process.open;
        const std::shared_ptr<const void> place(nullptr, [open = process.open](const void*) { --*open; });
        try {
            answer = connect_({process.name, process.storage, std::move(request), place});
        } catch (const std::exception& error) { // the store, or no memory
            answer = {ECONNREFUSED, error.what()};
        }
    }
    if (!protocol::send_storage_answer(process.socket.get(), answer))
        forget(id);
}

void StorageService::drop(std::uint64_t id, Process& process, const char* why, protocol::StorageRequest request) {
    report_(fmt::format("{}: its process violates the storage protocol: it {}; it reaches its storage no longer",
                        process.name, why));
    // Unread messages are dropped with the socket. An unexpected file may block whoever closes it.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, process.socket.get(), nullptr);
    try {
        std::thread([socket = std::move(process.socket), request = std::move(request)] {}).detach();
    } catch (const std::system_error&) { // no thread: closed here after all
    }
    forget(id);
}

void StorageService::forget(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    processes_.erase(id);
}

} // namespace kvmserver::daemon
