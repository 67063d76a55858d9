// Connects sockets within the machine: socketpair(), and connect() to the program's own listeners. The host takes no
// part, so this works while a snapshot is made, and a request machine connects to itself, not to another machine.
#include "tinykvm/guest/local.hpp"

namespace gk {
namespace {

constexpr u32 kMaxPending = 4096;

// An internet address and port. IPv4 addresses are stored IPv4-mapped.
struct Inet {
    u8 ip[16] = {};
    u8 port[2] = {};
    bool parse(const u8* address, u32 bytes) {
        u16 family;
        memcpy(&family, address, 2);
        if (family == AF_INET_ && bytes >= 16) {
            ip[10] = ip[11] = 0xff;
            memcpy(ip + 12, address + 4, 4);
        } else if (family == AF_INET6_ && bytes >= 24) {
            memcpy(ip, address + 8, 16);
        } else {
            return false;
        }
        memcpy(port, address + 2, 2);
        return true;
    }
    u32 put(u32 family, u8* to) const {
        memset(to, 0, 28);
        to[0] = static_cast<u8>(family);
        memcpy(to + 2, port, 2);
        memcpy(to + (family == AF_INET_ ? 4 : 8), family == AF_INET_ ? ip + 12 : ip, family == AF_INET_ ? 4 : 16);
        return family == AF_INET_ ? 16 : 28;
    }
    bool is_ipv4() const {
        for (u32 i = 0; i < 12; ++i)
            if (ip[i] != (i < 10 ? 0 : 0xff))
                return false;
        return true;
    }
    bool ends_in(u32 from, u8 last) const {
        for (u32 i = from; i < 15; ++i)
            if (ip[i] != 0)
                return false;
        return ip[15] == last;
    }
    bool is_any() const { return ends_in(is_ipv4() ? 12 : 0, 0); }
    bool is_loopback() const { return is_ipv4() ? ip[12] == 127 : ends_in(0, 1); }
    bool same_ip(const Inet& other) const {
        for (u32 i = 0; i < 16; ++i)
            if (ip[i] != other.ip[i])
                return false;
        return true;
    }
};

// Whether a connection to `to` reaches this listener.
bool reaches(const Socket* listener, const Inet& to) {
    Inet at;
    if (!at.parse(listener->local, listener->local_bytes) || at.port[0] != to.port[0] || at.port[1] != to.port[1])
        return false;
    if (!at.is_any())
        return at.same_ip(to);
    constexpr u32 kV6Only = 26;
    const SetOption* only = find_option(listener, IPPROTO_IPV6_, kV6Only);
    const bool both = listener->family == AF_INET6_ && !(only && only->value);
    return to.is_loopback() && (both || to.is_ipv4() == (listener->family == AF_INET_));
}

// The length of a Unix address. A path ends at its NUL; an abstract name has no terminator.
u32 name_bytes(const u8* address, u32 bytes) {
    if (bytes > 2 && address[2])
        for (u32 i = 2; i < bytes; ++i)
            if (!address[i])
                return i;
    return bytes;
}

bool same_name(const Socket* listener, const u8* address, u32 bytes) {
    const u32 length = name_bytes(address, bytes);
    if (length <= 2 || name_bytes(listener->local, listener->local_bytes) != length)
        return false;
    for (u32 i = 2; i < length; ++i)
        if (listener->local[i] != address[i])
            return false;
    return true;
}

// Chooses an ephemeral port.
void choose_port(Inet& at) {
    static u32 next;
    const u32 port = 32768 + next++ % 28232;
    at.port[0] = static_cast<u8>(port >> 8);
    at.port[1] = static_cast<u8>(port);
}

void set_peer(LocalEnd* end, const u8* address, u32 bytes) {
    memcpy(end->peer, address, kAddressRoom);
    end->peer_bytes = bytes;
}

// Sets the addresses of both ends of an internet connection, each in the form of its own socket family.
void name_inet(Socket* client, Socket* server, Inet to) {
    Inet from;
    if (!client->local_bytes || !from.parse(client->local, client->local_bytes)) {
        from = to;
        choose_port(from);
    } else if (from.is_any()) {
        memcpy(from.ip, to.ip, 16);
    }
    u8 text[kAddressRoom] = {};
    u32 bytes = to.put(client->family, text);
    set_peer(client->end, text, bytes);
    bytes = from.put(server->family, text);
    set_peer(server->end, text, bytes);
    client->local_bytes = from.put(client->family, client->local);
    server->local_bytes = to.put(server->family, server->local);
}

void name_unix(Socket* client, Socket* server, const Socket* listener) {
    set_peer(client->end, listener->local, listener->local_bytes);
    set_peer(server->end, client->local, client->local_bytes ? client->local_bytes : 2);
    server->end->peer[0] = AF_UNIX_;
    memcpy(server->local, listener->local, kAddressRoom);
    server->local_bytes = listener->local_bytes;
}

} // namespace

Socket* own_listener(const Socket* s, const u8* address, u32 bytes) {
    u16 family;
    memcpy(&family, address, 2);
    Inet to;
    if (s->family == AF_UNIX_ ? family != AF_UNIX_ : !to.parse(address, bytes))
        return nullptr;
    if (s->family == AF_INET_ && family != AF_INET_)
        return nullptr;
    if (s->family == AF_INET6_ && family == AF_INET_)
        return nullptr;
    if (s->family != AF_UNIX_ && to.is_any()) // Linux connects to the loopback address
        to.ip[12] = to.is_ipv4() ? 127 : 0, to.ip[15] = 1;
    for (Socket* l = first_active(); l; l = l->next)
        if (l->mode == Mode::listening && !l->read_shut && (l->family == AF_UNIX_) == (s->family == AF_UNIX_) &&
            (s->family == AF_UNIX_ ? same_name(l, address, bytes) : reaches(l, to)))
            return l;
    return nullptr;
}

i64 connect_own(Socket* s, Socket* listener, const u8* to_address, u32 bytes) {
    if (s->type != listener->type)
        return -91; // EPROTOTYPE
    const u64 deadline = until(s->send_timeout);
    const u32 most = listener->backlog < kMaxPending ? listener->backlog : kMaxPending;
    ref(listener);
    i64 failed = 0;
    while (failed == 0 && listener->mode == Mode::listening && !listener->read_shut && listener->pending_count > most) {
        const Wake wake = nonblocking(s) ? Wake::timeout : wait_io(deadline);
        if (wake != Wake::event)
            failed = wake == Wake::timeout ? -EAGAIN : s->send_timeout ? -EINTR : -ERESTARTSYS;
    }
    if (failed == 0 && listener->read_shut)
        failed = -ECONNREFUSED;
    if (failed == 0 && s->mode == Mode::local)
        failed = -EISCONN; // another thread has connected it in the meantime
    Socket* server = failed ? nullptr : make_socket(listener->family, listener->type, listener->protocol, 0);
    if (!failed && !server)
        failed = -ENOMEM;
    const i32 handle = s->mode == Mode::host ? s->handle : -1;
    if (server && (failed = join_ends(s, server)) < 0) {
        server->mode = Mode::fresh;
        unref(server);
    }
    if (failed == 0) {
        if (handle >= 0)
            host_call(abi::kCloseHandle, static_cast<u64>(handle));
        s->handle = -1;
        Inet to;
        if (s->family == AF_UNIX_) {
            name_unix(s, server, listener);
        } else {
            to.parse(to_address, bytes);
            if (to.is_any())
                to.ip[12] = to.is_ipv4() ? 127 : 0, to.ip[15] = 1;
            name_inet(s, server, to);
        }
        server->next_pending = nullptr;
        (listener->last_pending ? listener->last_pending->next_pending : listener->first_pending) = server;
        listener->last_pending = server;
        ++listener->pending_count;
        event_in(listener);
        event_out(s);
        if (s->family != AF_UNIX_ && nonblocking(s)) { // as on Linux, a non-blocking connect completes later
            s->connected = false;
            failed = -EINPROGRESS;
        }
    }
    unref(listener);
    return failed;
}

Socket* take_pending(Socket* listener) {
    Socket* server = listener->first_pending;
    if (!server)
        return nullptr;
    listener->first_pending = server->next_pending;
    if (!listener->first_pending)
        listener->last_pending = nullptr;
    --listener->pending_count;
    event_out(listener); // a connect may wait for room in the backlog
    return server;
}

i64 sys_socketpair(const Args& c) {
    const u32 type = static_cast<u32>(c.a[1]) & 0xf;
    if (static_cast<u32>(c.a[1]) & ~(0xfu | O_NONBLOCK_ | O_CLOEXEC_))
        return -EINVAL;
    if (c.a[0] != AF_UNIX_)
        return c.a[0] == AF_INET_ || c.a[0] == AF_INET6_ ? -EOPNOTSUPP : -EAFNOSUPPORT;
    if (type != SOCK_STREAM_ && type != SOCK_DGRAM_ && type != SOCK_SEQPACKET_)
        return type > 10 ? -EINVAL : -94; // ESOCKTNOSUPPORT
    if (c.a[2] > 1)
        return -EPROTONOSUPPORT;
    const u32 flags = static_cast<u32>(c.a[1]) & O_NONBLOCK_;
    Socket* const ends[] = {make_socket(AF_UNIX_, type, 0, flags), make_socket(AF_UNIX_, type, 0, flags)};
    const i64 error = ends[0] && ends[1] ? join_ends(ends[0], ends[1]) : -ENFILE;
    for (Socket* s : ends) {
        if (s && error < 0)
            unref(s);
        else if (s)
            s->end->peer[0] = AF_UNIX_, s->end->peer_bytes = 2;
    }
    return error < 0 ? error : install_two(ends[0], ends[1], (static_cast<u32>(c.a[1]) & O_CLOEXEC_) != 0, c.a[3]);
}

} // namespace gk
