// Netlink route sockets (netlink(7)). The host answers requests (linux/route.cpp), and the replies wait here as
// datagrams. Multicast groups may be joined, but a machine never has an event to report.
#include "tinykvm/guest/local.hpp"

namespace gk {

struct RouteReply {
    RouteReply* next;
    u32 bytes, at; // `at`: bytes already read
    u64 room;      // size of the allocation
    u8 data[8];
};

namespace {

constexpr u32 kRequestBytes = 4096, kReplyBytes = 64 << 10;
constexpr u32 kDatagramBytes = 3600; // programs often read with a buffer of one page
constexpr u32 kNameBytes = 12;       // sockaddr_nl
constexpr u32 kMaxReplies = 64;

// The length of the next datagram: as many whole messages as fit.
u32 datagram(const RouteReply* r) {
    u32 end = r->at;
    while (r->bytes - end >= 16) {
        u32 length;
        memcpy(&length, r->data + end, sizeof(length));
        length = (length + 3) & ~3u;
        if (length < 16 || length > r->bytes - end || (end > r->at && end + length - r->at > kDatagramBytes))
            break;
        end += length;
    }
    return end > r->at ? end - r->at : r->bytes - r->at;
}

void drop_first(Socket* s) {
    RouteReply* r = s->replies;
    s->replies = r->next;
    release(r, r->room);
}

i64 queue_reply(Socket* s, const u8* data, u32 bytes) {
    RouteReply** at = &s->replies;
    u32 waiting = 0;
    while (*at) {
        at = &(*at)->next;
        ++waiting;
    }
    const u64 room = sizeof(RouteReply) + bytes;
    auto* r = waiting < kMaxReplies ? static_cast<RouteReply*>(allocate(room)) : nullptr;
    if (!r)
        return -ENOBUFS;
    r->bytes = bytes;
    r->room = room;
    memcpy(r->data, data, bytes);
    *at = r;
    event_in(s);
    return 0;
}

} // namespace

i64 route_bind(Socket* s, const u8* address_bytes, u32 bytes) {
    if (bytes < kNameBytes)
        return -EINVAL;
    u32 port;
    memcpy(&port, address_bytes + 4, sizeof(port));
    if (s->local_bytes && port && port != s->route_port)
        return -EINVAL;
    if (!s->local_bytes) {
        static u32 further; // as in Linux, the first socket's port id is the pid
        static bool first_taken;
        s->route_port = port ? port : first_taken ? static_cast<u32>(-4097) - further++ : gk_shared_page.pid;
        first_taken = true;
    }
    memset(s->local, 0, kNameBytes);
    s->local[0] = AF_NETLINK_;
    memcpy(s->local + 4, &s->route_port, sizeof(s->route_port));
    memcpy(s->local + 8, address_bytes + 8, 4); // groups
    s->local_bytes = kNameBytes;
    return 0;
}

i64 route_send(Socket* s, Cursor& from) {
    const u64 bytes = from.left;
    if (bytes > kRequestBytes)
        return -EMSGSIZE;
    if (!s->local_bytes) {
        const u8 any[kNameBytes] = {AF_NETLINK_};
        route_bind(s, any, kNameBytes);
    }
    u8* const buffer = static_cast<u8*>(allocate_dirty(kRequestBytes + kReplyBytes));
    if (!buffer)
        return -ENOBUFS;
    i64 result = bytes ? from.get(buffer, bytes) : 0;
    if (result == static_cast<i64>(bytes)) {
        u8* const reply = buffer + kRequestBytes;
        const i64 n = host_call(abi::kRoute, address(buffer), bytes, address(reply), kReplyBytes, s->route_port);
        if (n < 0 || n > static_cast<i64>(kReplyBytes))
            result = n < 0 ? n : -EIO;
        else if (n > 0 && queue_reply(s, reply, static_cast<u32>(n)) < 0)
            result = -ENOBUFS;
    } else {
        result = -EFAULT;
    }
    release(buffer, kRequestBytes + kReplyBytes);
    return result;
}

i64 route_receive(Socket* s, Cursor& to, u32 flags, u64 name, u32* name_bytes, u32* out_flags) {
    if (flags & MSG_OOB_)
        return -EOPNOTSUPP;
    const u64 deadline = until(s->receive_timeout);
    while (!s->replies) {
        if (nonblocking(s) || (flags & MSG_DONTWAIT_))
            return -EAGAIN;
        const Wake wake = wait_io(deadline);
        if (wake != Wake::event)
            return wake == Wake::timeout ? -EAGAIN : s->receive_timeout ? -EINTR : -ERESTARTSYS;
    }
    RouteReply* r = s->replies;
    const u32 length = datagram(r);
    const u64 wanted = length < to.left ? length : to.left;
    if (wanted && to.put(r->data + r->at, wanted) != static_cast<i64>(wanted))
        return -EFAULT;
    if (wanted < length && out_flags)
        *out_flags |= MSG_TRUNC_;
    if (name && name_bytes) {
        const u8 kernel[kNameBytes] = {AF_NETLINK_};
        if (!copy_to_user(name, kernel, *name_bytes < kNameBytes ? *name_bytes : kNameBytes))
            return -EFAULT;
    }
    if (name_bytes)
        *name_bytes = kNameBytes;
    if (!(flags & MSG_PEEK_)) {
        r->at += length;
        if (r->at == r->bytes)
            drop_first(s);
    }
    return static_cast<i64>(flags & MSG_TRUNC_ ? length : wanted);
}

u32 route_poll(const Socket* s) { return POLLOUT_ | POLLWRNORM_ | (s->replies ? POLLIN_ | POLLRDNORM_ : 0u); }

void route_close(Socket* s) {
    while (s->replies)
        drop_first(s);
}

// Options for the form of errors and requests, and for groups. Known ones are accepted and have no effect.
i64 route_option(u32 name) {
    constexpr u32 kKnown = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 10 | 1u << 11 | 1u << 12;
    return name < 32 && (kKnown >> name & 1) ? 0 : -ENOPROTOOPT;
}

} // namespace gk
