#include "src/link/machine_link.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver::link {

std::pair<tinykvm::UniqueFd, tinykvm::UniqueFd> make_pair() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        tinykvm::throw_errno("socketpair");
    return {tinykvm::UniqueFd(pair[0]), tinykvm::UniqueFd(pair[1])};
}

namespace {

// A message with room for `control` bytes beside it.
struct Envelope {
    Envelope(Message& message, std::span<char> control) : bytes{&message, sizeof(message)} {
        header.msg_iov = &bytes;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
    }
    Envelope(const Envelope&) = delete;
    Envelope& operator=(const Envelope&) = delete;

    iovec bytes;
    msghdr header{};
};

// All that arrived, the descriptors of a message that is none as well: else nobody would close them.
ssize_t receive_some(int socket, int flags, Envelope& envelope, std::vector<tinykvm::UniqueFd>& files) {
    ssize_t got;
    do
        got = ::recvmsg(socket, &envelope.header, MSG_CMSG_CLOEXEC | flags);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return got;
    for (cmsghdr* part = CMSG_FIRSTHDR(&envelope.header); part; part = CMSG_NXTHDR(&envelope.header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
            files.emplace_back(fd);
        }
    }
    return got;
}

} // namespace

bool send_files(int socket, const Message& message, std::span<const int> files) {
    Message copy = message;
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
    if (files.size() > kMostFiles) {
        errno = EINVAL;
        return false;
    }
    Envelope envelope(copy, std::span(control, files.empty() ? 0 : CMSG_SPACE(files.size_bytes())));
    if (!files.empty()) {
        cmsghdr* const part = CMSG_FIRSTHDR(&envelope.header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(files.size_bytes());
        std::memcpy(CMSG_DATA(part), files.data(), files.size_bytes());
    }
    ssize_t sent;
    do
        sent = ::sendmsg(socket, &envelope.header, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof(message));
}

bool send(int socket, const Message& message, int fd) {
    return send_files(socket, message, std::span(&fd, fd >= 0 ? 1 : 0));
}

std::optional<Received> receive(int socket, Wait wait, bool* again) {
    Received out;
    std::vector<tinykvm::UniqueFd> files;
    // Not CMSG_SPACE: what it adds for alignment has room for a second descriptor.
    alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))] = {};
    Envelope envelope(out.message, control);
    const ssize_t got = receive_some(socket, wait == Wait::no ? MSG_DONTWAIT : 0, envelope, files);
    if (again)
        *again = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (got != static_cast<ssize_t>(sizeof(out.message)) ||
        (envelope.header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return std::nullopt;
    if (!files.empty())
        out.fd = std::move(files.front());
    return out;
}

std::optional<ReceivedFiles> receive_files(int socket) {
    ReceivedFiles out;
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
    Envelope envelope(out.message, control);
    const ssize_t got = receive_some(socket, 0, envelope, out.files);
    if (got != static_cast<ssize_t>(sizeof(out.message)) || (envelope.header.msg_flags & MSG_TRUNC) != 0)
        return std::nullopt;
    out.lost = (envelope.header.msg_flags & MSG_CTRUNC) != 0;
    return out;
}

} // namespace kvmserver::link
