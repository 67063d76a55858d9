#include "tests/unit/daemon/broken_worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "src/protocol/worker_messages.hpp"

namespace kvmserver::daemon::test {

using tinykvm::UniqueFd;

namespace {

// Of the socket, abstract: a worker has nothing of our environment. One test at a time.
std::string name_of(pid_t tests) { return "kvmserver-test-" + std::to_string(tests); }
constexpr int kControl = 3;
constexpr std::size_t kMax = 64 << 10;

sockaddr_un address_of(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
    return address;
}

bool has_input(int fd) {
    pollfd item{fd, POLLIN, 0};
    return ::poll(&item, 1, 0) > 0 && (item.revents & POLLIN);
}

struct Channel {
    UniqueFd fd, client;
};

void write_all_of(int fd, std::span<const std::uint8_t> bytes) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)!::write(fd, bytes.data(), bytes.size());
}

// Past what it is to serve.
bool take_machine(std::vector<Channel>& channels) {
    while (has_input(kControl)) {
        auto got = protocol::receive_files(kControl);
        if (!got)
            return false;
        if (got->message.kind == protocol::Kind::add_machine && got->files.size() == 1) {
            channels.push_back({std::move(got->files.front()), {}});
            return true;
        }
    }
    return false;
}

bool take_request(Channel& channel) {
    std::vector<char> room(protocol::kMaxInline);
    auto got = protocol::receive(channel.fd.get(), protocol::Wait::no, nullptr, room);
    if (!got || (got->message.kind != protocol::Kind::request && got->message.kind != protocol::Kind::connected))
        return false;
    channel.client = std::move(got->fd);
    return true;
}

bool send_bytes(int fd, std::span<const std::uint8_t> bytes, bool with_file) {
    iovec run{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &run;
    header.msg_iovlen = 1;
    if (with_file) {
        const int file = STDIN_FILENO;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr* const part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(part), &file, sizeof(int));
    }
    return ::sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

void flood(int fd, std::vector<std::uint8_t> bytes) {
    std::thread([fd, bytes = std::move(bytes)] {
        while (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0) {
        }
    }).detach();
}

bool perform(Act what, std::vector<Channel>& channels, std::uint8_t number, std::span<const std::uint8_t> bytes) {
    Channel none;
    Channel& channel = channels.empty() ? none : channels[number % channels.size()];
    const std::uint8_t first = bytes.empty() ? 0 : bytes[0];
    switch (what) {
    case Act::assigned: {
        static bool told = false;
        return told |= has_input(kControl);
    }
    case Act::machine: return take_machine(channels);
    case Act::send: return channel.fd && send_bytes(channel.fd.get(), bytes, false);
    case Act::send_file: return channel.fd && send_bytes(channel.fd.get(), bytes, true);
    case Act::request: return channel.fd && take_request(channel);
    case Act::reply: return channel.client && (write_all_of(channel.client.get(), bytes), true);
    case Act::hang_up: return channel.client && (channel.client.reset(), true);
    case Act::close: return channel.fd && (channel.fd.reset(), true);
    case Act::print: return write_all_of(STDOUT_FILENO, bytes), true;
    case Act::complain: return write_all_of(STDERR_FILENO, bytes), true;
    case Act::flood: return channel.fd && (flood(channel.fd.get(), {bytes.begin(), bytes.end()}), true);
    case Act::tell: return send_bytes(kControl, bytes, false);
    case Act::no_control: return ::close(kControl) == 0;
    case Act::exit: ::_exit(first);
    case Act::die:
        ::signal(first, SIG_DFL);
        ::raise(first);
        ::_exit(1);
    }
    return false;
}

[[noreturn]] void be_worker() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const UniqueFd test(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const sockaddr_un address = address_of(name_of(::getppid()));
    if (::connect(test.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        ::_exit(99);
    std::vector<std::uint8_t> command(kMax);
    std::vector<Channel> channels;
    for (;;) {
        const ssize_t n = ::recv(test.get(), command.data(), command.size(), 0);
        if (n < 2)
            ::_exit(98);
        const auto bytes = std::span(command).subspan(2, static_cast<std::size_t>(n) - 2);
        const char answer = perform(static_cast<Act>(command[0]), channels, command[1], bytes);
        ::send(test.get(), &answer, 1, MSG_NOSIGNAL);
    }
}

// Before main(), to which glibc's start gives the same words.
__attribute__((constructor)) void be_worker_if_started_as_one(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == "--function-process")
        be_worker();
}

} // namespace

bool Worker::act(Act what, std::uint8_t channel, std::span<const std::uint8_t> bytes) {
    std::vector<std::uint8_t> command{static_cast<std::uint8_t>(what), channel};
    command.insert(command.end(), bytes.begin(),
                   bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), kMax - 2)));
    char answer = 0;
    ssize_t got = gone_ ? -1 : ::send(socket_.get(), command.data(), command.size(), MSG_NOSIGNAL);
    if (got >= 0)
        do
            got = ::recv(socket_.get(), &answer, 1, 0);
        while (got < 0 && errno == EINTR); // libFuzzer has a timer
    gone_ = got != 1;
    return !gone_ && answer != 0;
}

Workers::Workers() : listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const sockaddr_un address = address_of(name_of(::getpid()));
    if (!listener_ || ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 64) != 0) {
        std::perror("a socket for workers");
        std::abort();
    }
}

std::vector<std::shared_ptr<Worker>>& Workers::all() {
    for (;;) {
        UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!socket)
            break;
        workers_.push_back(std::make_shared<Worker>(std::move(socket)));
    }
    std::erase_if(workers_, [](const auto& worker) { return worker->gone(); });
    return workers_;
}

std::shared_ptr<Worker> Workers::assigned(int milliseconds) {
    for (int waited = 0;; ++waited) {
        for (const auto& worker : std::vector(all()))
            if (!worker->given_ && (worker->given_ = worker->act(Act::assigned)))
                return worker;
        if (waited >= milliseconds)
            return nullptr;
        pollfd item{listener_.get(), POLLIN, 0};
        ::poll(&item, 1, 1);
    }
}

} // namespace kvmserver::daemon::test
