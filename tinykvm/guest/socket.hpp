// What the files of sockets share. A socket becomes a listener or one of its connections (buffers shared with the host,
// connection.cpp), a socket of the host behind a handle (socket_host.cpp), or one whose other end is in the machine as
// well (local.hpp), by what the program does with it.
#pragma once
#include "tinykvm/guest/calls.hpp"

namespace gk {

enum : u32 { AF_UNIX_ = 1, AF_INET_ = 2, AF_INET6_ = 10, AF_NETLINK_ = 16 };
enum : u32 { SOCK_STREAM_ = 1, SOCK_DGRAM_ = 2, SOCK_SEQPACKET_ = 5 };
enum : u32 {
    MSG_OOB_ = 1,
    MSG_PEEK_ = 2,
    MSG_CTRUNC_ = 8,
    MSG_TRUNC_ = 0x20,
    MSG_DONTWAIT_ = 0x40,
    MSG_WAITALL_ = 0x100,
    MSG_NOSIGNAL_ = 0x4000,
    MSG_CMSG_CLOEXEC_ = 0x40000000
};
enum : u32 { SOL_SOCKET_ = 1, IPPROTO_IP_ = 0, IPPROTO_TCP_ = 6, IPPROTO_IPV6_ = 41, SOL_NETLINK_ = 270 };
inline constexpr u64 kAddressRoom = 128; // sockaddr_storage

enum class Mode : u8 { fresh, bound, listening, connection, host, local, route };

struct LocalEnd;
struct Passed;
struct RouteReply;

// An integer option that the program set: the host hears of it once there is a host socket.
struct SetOption {
    u32 level, name;
    i32 value;
};
inline constexpr u32 kMaxSetOptions = 24;

inline constexpr u32 kNoListener = ~u32{0};

struct Socket : File {
    Mode mode = Mode::fresh;
    u32 family = 0, type = 0, protocol = 0;
    i32 handle = -1;
    u32 listener = kNoListener; // its number, from bind on
    u32 slot = 0;               // of a connection
    bool read_shut = false;     // of a listener: shut down, accepts no more
    bool connected = false;     // host or local socket: connect() was told of success
    bool connecting = false;    // host socket: the host is at it
    bool error_told =
        false;       // connection: the program has had its error; what is left is the end of the file, and EPIPE
    i32 linger = -1; // SO_LINGER seconds; -1: off
    u64 receive_timeout = 0, send_timeout = 0; // ns, 0: none
    u32 local_bytes = 0;
    u8 local[kAddressRoom] = {};
    SetOption options[kMaxSetOptions] = {};
    u32 option_count = 0;
    Socket* next = nullptr; // listening sockets and connections, for conns_updated()
    Socket* previous = nullptr;
    u32 seen_rx = 0, seen_flags = 0;
    LocalEnd* end = nullptr;                               // of a local one
    bool urgent_in_line = false, pass_credentials = false; // SO_OOBINLINE, SO_PASSCRED
    u32 route_port = 0;                                    // of a netlink route socket
    RouteReply* replies = nullptr;
    u32 backlog = 0, pending_count = 0; // of a listener: the program's own connections that wait for accept
    Socket* first_pending = nullptr;
    Socket* last_pending = nullptr;
    Socket* next_pending = nullptr;
};

inline u64 until(u64 timeout) { return timeout ? now_mono() + timeout : kNever; }
inline abi::Conn& conn_of(const Socket* s) { return gk_conn_table[s->slot]; }

// --- connections (connection.cpp)
Socket* first_active();
void activate(Socket*); // from now on conns_updated() looks after it
void deactivate(Socket*);
void noticed_offers(); // of connections, by accept
i64 connection_receive(Socket*, Cursor&, u32 flags);
i64 connection_send(Socket*, Cursor&, u32 flags);
u32 connection_poll(Socket*);
i64 connection_error(Socket*); // what the host found, once; then 0

// --- sockets of the host (socket_host.cpp)
i64 become_host(Socket*);
i64 host_connect(Socket*, u64 at, u64 bytes);
i64 host_message(Socket*, Cursor&, u32 flags, bool send, u64 name, u32* name_bytes, u32* out_flags);

// --- both ends in the machine (local.cpp, local_connect.cpp, passing.cpp)
i64 local_receive(Socket*, Cursor&, u32 flags, u32* out_flags,
                  Passed** passed);                   // what came with the bytes, or null: dropped
i64 local_send(Socket*, Cursor&, u32 flags, Passed*); // takes it, sent or not
u32 local_poll(Socket*);
void local_close(Socket*);
i64 local_shutdown(Socket*, u64 how);
i64 local_bytes_ready(const Socket*);
i64 local_bytes_unsent(const Socket*);
bool local_at_mark(const Socket*);
Socket* own_listener(const Socket*, const u8* address,
                     u32 bytes); // that a connection to this address would reach; or null
i64 connect_own(Socket*, Socket* listener, const u8* address, u32 bytes);
Socket* take_pending(Socket* listener);
i64 passed_from(u64 control_at, u64 bytes, Passed*&); // what the program wants to send along
// Control messages for the program: their length, or -EFAULT. Takes `passed`, which may be null.
i64 passed_to(u64 control_at, u64 bytes, Passed*, bool credentials, bool cloexec, u32& out_flags);

// --- netlink route sockets (route.cpp)
i64 route_bind(Socket*, const u8* address, u32 bytes);
i64 route_send(Socket*, Cursor&);
i64 route_receive(Socket*, Cursor&, u32 flags, u64 name, u32* name_bytes, u32* out_flags);
u32 route_poll(const Socket*);
void route_close(Socket*);
i64 route_option(u32 name);

// --- all of them
Socket* make_socket(u32 family, u32 type, u32 protocol, u32 flags);
Socket* socket_of(u64 fd, i64& error);
void free_listener(Socket*); // its number is another's to take
const SetOption* find_option(const Socket*, u32 level, u32 name);
i64 receive(Socket*, Cursor&, u32 flags, u64 name, u32* name_bytes, u32* out_flags, Passed** passed);
i64 send(Socket*, Cursor&, u32 flags, u64 name, u32 name_bytes, Passed* passed);

} // namespace gk
