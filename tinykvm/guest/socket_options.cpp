// Socket options. For listeners and client connections, whose traffic the host carries, options are only stored, so
// that the program reads back what it set. They are applied if the socket becomes a host socket.
#include "tinykvm/guest/local.hpp"
#include "tinykvm/guest/socket.hpp"

namespace gk {
namespace {

enum : u32 {
    SO_REUSEADDR_ = 2,
    SO_TYPE_ = 3,
    SO_ERROR_ = 4,
    SO_DONTROUTE_ = 5,
    SO_BROADCAST_ = 6,
    SO_SNDBUF_ = 7,
    SO_RCVBUF_ = 8,
    SO_KEEPALIVE_ = 9,
    SO_OOBINLINE_ = 10,
    SO_LINGER_ = 13,
    SO_REUSEPORT_ = 15,
    SO_PASSCRED_ = 16,
    SO_PEERCRED_ = 17,
    SO_RCVLOWAT_ = 18,
    SO_SNDLOWAT_ = 19,
    SO_RCVTIMEO_ = 20,
    SO_SNDTIMEO_ = 21,
    SO_ACCEPTCONN_ = 30,
    SO_PROTOCOL_ = 38,
    SO_DOMAIN_ = 39,
    SO_RCVTIMEO_NEW_ = 66,
    SO_SNDTIMEO_NEW_ = 67,
};
constexpr u32 IPV6_V6ONLY_ = 26;
constexpr u32 kBufferBytes = 212992;
struct Timeval {
    i64 sec, usec;
};
struct Linger {
    i32 on, seconds;
};

bool receiving(u32 name) { return name == SO_RCVTIMEO_ || name == SO_RCVTIMEO_NEW_; }
bool is_timeout(u32 level, u32 name) {
    return level == SOL_SOCKET_ && (receiving(name) || name == SO_SNDTIMEO_ || name == SO_SNDTIMEO_NEW_);
}

i64 set_timeout(u64& timeout, u64 at, u64 bytes) {
    Timeval t;
    if (bytes < sizeof(t))
        return -EINVAL;
    if (!get_user(t, at))
        return -EFAULT;
    if (t.usec < 0 || t.usec >= 1'000'000)
        return -33; // EDOM
    timeout = t.sec < 0 ? 0 : to_ns(Timespec{t.sec, t.usec * 1000});
    return 0;
}

// Copies a value to the program, truncated to its buffer.
i64 put_value(const void* value, u32 bytes, u64 at, u64 room_at) {
    u32 room;
    if (!get_user(room, room_at))
        return -EFAULT;
    if (static_cast<i32>(room) < 0)
        return -EINVAL;
    const u32 n = room < bytes ? room : bytes;
    return copy_to_user(at, value, n) && put_user(room_at, n) ? 0 : -EFAULT;
}

i64 put_timeout(u64 ns, const Args& c) {
    const Timeval t{static_cast<i64>(ns / 1'000'000'000), static_cast<i64>(ns % 1'000'000'000 / 1000)};
    return put_value(&t, sizeof(t), c.a[3], c.a[4]);
}

void keep_option(Socket* s, u32 level, u32 name, i32 value) {
    auto* o = const_cast<SetOption*>(find_option(s, level, name));
    if (!o) {
        if (s->option_count == kMaxSetOptions)
            return;
        o = &s->options[s->option_count++];
    }
    *o = {level, name, value};
}

i64 option_of_socket(Socket* s, u32 name, i32& value) {
    if (const SetOption* o = find_option(s, SOL_SOCKET_, name)) {
        // The kernel doubles buffer sizes for its own needs (socket(7)).
        value = name == SO_SNDBUF_ || name == SO_RCVBUF_ ? o->value * 2
                : name == SO_RCVLOWAT_                   ? o->value
                                                         : o->value != 0;
        return 0;
    }
    switch (name) {
    case SO_TYPE_: value = static_cast<i32>(s->type); return 0;
    case SO_DOMAIN_: value = static_cast<i32>(s->family); return 0;
    case SO_PROTOCOL_:
        value = s->family == AF_UNIX_ || s->family == AF_NETLINK_ ? 0 : s->type == SOCK_STREAM_ ? 6 : 17;
        return 0;
    case SO_ACCEPTCONN_: value = s->mode == Mode::listening; return 0;
    case SO_SNDBUF_:
    case SO_RCVBUF_: value = kBufferBytes; return 0;
    case SO_RCVLOWAT_:
    case SO_SNDLOWAT_: value = 1; return 0;
    case SO_ERROR_:
        if (s->mode == Mode::connection)
            value = static_cast<i32>(connection_error(s));
        return 0;
    case SO_REUSEADDR_:
    case SO_KEEPALIVE_:
    case SO_DONTROUTE_:
    case SO_BROADCAST_:
    case SO_OOBINLINE_:
    case SO_REUSEPORT_:
    case SO_PASSCRED_: return 0;
    default: return -ENOPROTOOPT;
    }
}

// Linux: include/net/tcp_states.h. A socket whose both directions have ended is CLOSE, whoever was first.
enum TcpState : u8 { kEstablished = 1, kFinWait2 = 5, kClose = 7, kCloseWait = 8, kListen = 10 };

TcpState tcp_state(const Socket* s) {
    bool ours = false, theirs = false; // have ended
    switch (s->mode) {
    case Mode::listening: return kListen;
    case Mode::connection:
        if (conn_of(s).error || s->error_told)
            return kClose;
        ours = conn_of(s).shut_write;
        theirs = conn_of(s).rx_eof;
        break;
    case Mode::local:
        if (!s->end)
            return kClose;
        ours = s->end->write_shut;
        theirs = s->end->read_shut || !s->end->in->writer;
        break;
    default: return kClose;
    }
    return ours ? (theirs ? kClose : kFinWait2) : theirs ? kCloseWait : kEstablished;
}

constexpr u32 kSegmentBytes = 1460;

// The state, the segment size, and of a listener its queue: the rest is known to the host alone, and 0.
struct TcpInfo { // the first 104 bytes of tcp_info in Linux's include/uapi/linux/tcp.h, as older kernels have it
    u8 state;
    u8 of_retransmission[7] = {};
    u32 timeouts[2] = {};
    u32 send_segment = kSegmentBytes, receive_segment = kSegmentBytes;
    u32 unacknowledged = 0, acknowledged_apart = 0; // of a listener: connections that wait for accept, and the backlog
    u32 rest[18] = {};
};
static_assert(sizeof(TcpInfo) == 104);

i64 put_tcp_info(const Socket* s, const Args& c) {
    TcpInfo info{.state = tcp_state(s)};
    if (s->mode == Mode::listening) {
        info.unacknowledged = s->pending_count;
        info.acknowledged_apart = s->backlog;
    }
    return put_value(&info, sizeof(info), c.a[3], c.a[4]);
}

} // namespace

const SetOption* find_option(const Socket* s, u32 level, u32 name) {
    for (u32 i = 0; i < s->option_count; ++i)
        if (s->options[i].level == level && s->options[i].name == name)
            return &s->options[i];
    return nullptr;
}

i64 sys_setsockopt(const Args& c) {
    const u32 level = static_cast<u32>(c.a[1]), name = static_cast<u32>(c.a[2]), bytes = static_cast<u32>(c.a[4]);
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (static_cast<i32>(bytes) < 0)
        return -EINVAL;
    if (is_timeout(level, name)) // the host never blocks, so the guest kernel implements timeouts in every mode
        return set_timeout(receiving(name) ? s->receive_timeout : s->send_timeout, c.a[3], bytes);
    if (s->mode == Mode::host)
        return pass_call(54, static_cast<u64>(s->handle), c.a[1], c.a[2], c.a[3], c.a[4]);
    if (s->mode == Mode::route && level == SOL_NETLINK_)
        return route_option(name);
    if ((s->family == AF_UNIX_ || s->mode == Mode::route) && level != SOL_SOCKET_)
        return s->mode == Mode::route ? -ENOPROTOOPT : -EOPNOTSUPP;
    if (level != SOL_SOCKET_ && level != IPPROTO_TCP_ && level != IPPROTO_IPV6_ && level != IPPROTO_IP_)
        return -ENOPROTOOPT;
    if (level == SOL_SOCKET_ && name == SO_LINGER_) {
        Linger linger;
        if (bytes < sizeof(linger))
            return -EINVAL;
        if (!get_user(linger, c.a[3]))
            return -EFAULT;
        s->linger = linger.on ? linger.seconds : -1;
        return 0;
    }
    if (level == IPPROTO_IPV6_ && s->family != AF_INET6_)
        return -ENOPROTOOPT;
    const bool v6_only = level == IPPROTO_IPV6_ && name == IPV6_V6ONLY_;
    if (v6_only && s->mode != Mode::fresh)
        return -EINVAL; // IPV6_V6ONLY must be set before bind()
    i32 value = 0;
    if (bytes < sizeof(value)) {
        if (level == SOL_SOCKET_ || level == IPPROTO_TCP_ || bytes == 0)
            return -EINVAL;
        u8 byte;
        if (!get_user(byte, c.a[3]))
            return -EFAULT;
        value = byte;
    } else if (!get_user(value, c.a[3])) {
        return -EFAULT;
    }
    if (level == SOL_SOCKET_ && name == SO_OOBINLINE_)
        s->urgent_in_line = value != 0;
    if (level == SOL_SOCKET_ && name == SO_PASSCRED_)
        s->pass_credentials = value != 0;
    keep_option(s, level, name, v6_only ? value != 0 : value);
    return 0;
}

i64 sys_getsockopt(const Args& c) {
    const u32 level = static_cast<u32>(c.a[1]), name = static_cast<u32>(c.a[2]);
    i64 error = 0;
    Socket* s = socket_of(c.a[0], error);
    if (!s)
        return error;
    if (is_timeout(level, name))
        return put_timeout(receiving(name) ? s->receive_timeout : s->send_timeout, c);
    if (s->mode == Mode::host)
        return pass_call(55, static_cast<u64>(s->handle), c.a[1], c.a[2], c.a[3], c.a[4]);
    if (level == SOL_SOCKET_ && name == SO_LINGER_) {
        const Linger linger{s->linger >= 0, s->linger >= 0 ? s->linger : 0};
        return put_value(&linger, sizeof(linger), c.a[3], c.a[4]);
    }
    if (level == SOL_SOCKET_ && name == SO_PEERCRED_) {
        const bool known = s->family == AF_UNIX_ && (s->mode == Mode::local || s->mode == Mode::listening);
        const u32 who[3] = {known ? gk_shared_page.pid : 0, known ? current->ids.user.effective : ~0u,
                            known ? current->ids.group.effective : ~0u};
        return put_value(who, sizeof(who), c.a[3], c.a[4]);
    }
    i32 value = 0;
    if (level == SOL_SOCKET_)
        error = option_of_socket(s, name, value);
    else if (s->family == AF_UNIX_ || (level != IPPROTO_TCP_ && level != IPPROTO_IPV6_ && level != IPPROTO_IP_))
        return -EOPNOTSUPP;
    else if (level == IPPROTO_IPV6_ && s->family != AF_INET6_)
        return -ENOPROTOOPT;
    else if (const SetOption* o = find_option(s, level, name))
        value = o->value;
    else if (level == IPPROTO_TCP_ && name == 2 /*TCP_MAXSEG*/)
        value = kSegmentBytes;
    else if (level == IPPROTO_TCP_ && name == 11 /*TCP_INFO*/)
        return put_tcp_info(s, c);
    if (error < 0)
        return error;
    return put_value(&value, sizeof(value), c.a[3], c.a[4]);
}

} // namespace gk
