#include "src/protocol/packet.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver::protocol {

using tinykvm::UniqueFd;

std::pair<UniqueFd, UniqueFd> make_pair() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        tinykvm::throw_errno("socketpair");
    return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

bool send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> files, Wait wait,
                 std::span<const std::byte> more) {
    if (files.size() > kMaxFiles) {
        errno = EINVAL;
        return false;
    }
    iovec parts[2] = {{const_cast<std::byte*>(bytes.data()), bytes.size()},
                      {const_cast<std::byte*>(more.data()), more.size()}};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = more.empty() ? 1 : 2;
    if (!files.empty()) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(files.size_bytes());
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(files.size_bytes());
        std::memcpy(CMSG_DATA(rights), files.data(), files.size_bytes());
    }
    ssize_t sent;
    do
        sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | (wait == Wait::no ? MSG_DONTWAIT : 0));
    while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(bytes.size() + more.size());
}

std::optional<Packet> receive_packet(int socket, std::span<std::byte> room, std::size_t files, Wait wait, bool* again,
                                     std::span<std::byte> more) {
    Packet packet;
    iovec parts[2] = {{room.data(), room.size()}, {more.data(), more.size()}};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int))];
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = more.empty() ? 1 : 2;
    header.msg_control = control;
    // CMSG_LEN, not CMSG_SPACE: its alignment padding could hold one more descriptor.
    header.msg_controllen = CMSG_LEN(std::min(files, kMaxFiles) * sizeof(int));
    ssize_t got;
    do
        got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | (wait == Wait::no ? MSG_DONTWAIT : 0));
    while (got < 0 && errno == EINTR);
    if (again)
        *again = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (got < 0)
        return std::nullopt;
    // Take the descriptors of an empty message too: otherwise nobody would close them.
    for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights; rights = CMSG_NXTHDR(&header, rights)) {
        if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
            packet.files.emplace_back(fd);
        }
    }
    if (got == 0)
        return std::nullopt;
    packet.bytes = static_cast<std::size_t>(got);
    packet.cut = (header.msg_flags & MSG_TRUNC) != 0;
    packet.lost = (header.msg_flags & MSG_CTRUNC) != 0;
    return packet;
}

} // namespace kvmserver::protocol
