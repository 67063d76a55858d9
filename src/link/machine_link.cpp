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

bool send(int socket, const Message& message, int fd) {
    iovec bytes{const_cast<Message*>(&message), sizeof(message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    if (fd >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof(control);
        cmsghdr* const part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(part), &fd, sizeof(int));
    }
    ssize_t sent;
    do
        sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof(message));
}

std::optional<Received> receive(int socket, Wait wait, bool* again) {
    Received out;
    iovec bytes{&out.message, sizeof(out.message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    // Not CMSG_SPACE: what it adds for alignment has room for a second descriptor, which nobody would close.
    header.msg_controllen = CMSG_LEN(sizeof(int));
    ssize_t got;
    do
        got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | (wait == Wait::no ? MSG_DONTWAIT : 0));
    while (got < 0 && errno == EINTR);
    if (again)
        *again = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (got > 0)
        for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part))
            if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
                int fd;
                std::memcpy(&fd, CMSG_DATA(part), sizeof(int));
                out.fd = tinykvm::UniqueFd(fd);
            }
    if (got != static_cast<ssize_t>(sizeof(out.message)) ||
        (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return std::nullopt;
    return out;
}

} // namespace kvmserver::link
