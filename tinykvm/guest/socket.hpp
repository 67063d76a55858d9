// Declarations shared by the files that implement sockets. What the program does with a new socket decides its kind:
// a listener or one of its connections, with buffers shared with the host (connection.cpp); a socket on the host behind
// a handle (socket_host.cpp); or a socket with both ends in the machine (local.hpp).
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

// An integer option that the program set. It is applied when the host's socket is made.
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
    u32 listener = kNoListener; // listener number, from bind() on
    u32 slot = 0;               // connection slot
    bool read_shut = false;     // reading is shut down; a listener then accepts no more
    bool connected = false;     // host or local socket: connect() has returned success
    bool connecting = false;    // host socket: connect() is in progress
    // Connection: the program has received its error. From now on reads return end of file, and writes EPIPE.
    bool error_told = false;
    i32 linger = -1;                           // SO_LINGER seconds; -1: off
    u64 receive_timeout = 0, send_timeout = 0; // ns, 0: none
    u32 local_bytes = 0;
    u8 local[kAddressRoom] = {};
    SetOption options[kMaxSetOptions] = {};
    u32 option_count = 0;
    Socket* next = nullptr; // list of listening sockets and connections, for conns_updated()
    Socket* previous = nullptr;
    u32 seen_rx = 0, seen_flags = 0;
    LocalEnd* end = nullptr;                               // local sockets
    bool urgent_in_line = false, pass_credentials = false; // SO_OOBINLINE, SO_PASSCRED
    u32 route_port = 0;                                    // netlink route sockets: port id, and unread replies
    RouteReply* replies = nullptr;
    u32 backlog = 0, pending_count = 0; // listeners: the program's own connections that wait for accept
    Socket* first_pending = nullptr;
    Socket* last_pending = nullptr;
    Socket* next_pending = nullptr;
};

inline u64 until(u64 timeout) { return timeout ? now_mono() + timeout : kNever; }
inline abi::Conn& conn_of(const Socket* s) { return gk_conn_table[s->slot]; }

// --- connections (connection.cpp)
Socket* first_active();
void activate(Socket*); // puts it on the list that conns_updated() checks
void deactivate(Socket*);
void become_connection(Socket*, u32 slot); // of a slot in state kConnOpen
// Connects to a program in another machine of the process. -ENOENT: none listens there.
i64 connect_near(Socket*, const u8* to, u32 bytes);
void noticed_offers(); // after an accept: remembers the number of connections that wait
i64 connection_receive(Socket*, Cursor&, u32 flags);
i64 connection_send(Socket*, Cursor&, u32 flags);
u32 connection_poll(Socket*);
i64 connection_error(Socket*); // the host's error as a positive errno, once; then 0

// --- sockets of the host (socket_host.cpp)
i64 become_host(Socket*);                     // makes the host's socket and applies options and address
i64 host_connect(Socket*, u64 at, u64 bytes); // `at` points to guest kernel memory
i64 host_message(Socket*, Cursor&, u32 flags, bool send, u64 name, u32* name_bytes, u32* out_flags);

// --- both ends in the machine (local.cpp, local_connect.cpp, passing.cpp)
// `passed` receives the files that came with the bytes. If it is null, they are dropped.
i64 local_receive(Socket*, Cursor&, u32 flags, u32* out_flags, Passed** passed);
i64 local_send(Socket*, Cursor&, u32 flags, Passed*); // takes ownership of the files in any case
u32 local_poll(Socket*);
void local_close(Socket*);
i64 local_shutdown(Socket*, u64 how);
i64 local_bytes_ready(const Socket*);
i64 local_bytes_unsent(const Socket*);
bool local_at_mark(const Socket*);
// The program's own listener that a connection to this address would reach, or null.
Socket* own_listener(const Socket*, const u8* address, u32 bytes);
i64 connect_own(Socket*, Socket* listener, const u8* address, u32 bytes);
Socket* take_pending(Socket* listener);               // the next own connection that waits for accept, or null
i64 passed_from(u64 control_at, u64 bytes, Passed*&); // reads the control messages of a sendmsg
// Writes the control messages of a recvmsg: their length, or -EFAULT. Takes ownership of `passed`, which may be null.
i64 passed_to(u64 control_at, u64 bytes, Passed*, bool credentials, bool cloexec, u32& out_flags);

// --- netlink route sockets (route.cpp)
i64 route_bind(Socket*, const u8* address, u32 bytes);
i64 route_send(Socket*, Cursor&);
i64 route_receive(Socket*, Cursor&, u32 flags, u64 name, u32* name_bytes, u32* out_flags);
u32 route_poll(const Socket*);
void route_close(Socket*);
i64 route_option(u32 name);

// --- all sockets
Socket* make_socket(u32 family, u32 type, u32 protocol, u32 flags); // null: no memory
Socket* socket_of(u64 fd, i64& error);                              // null with `error` set: EBADF, ENOTSOCK
void free_listener(Socket*);                                        // frees its listener number
const SetOption* find_option(const Socket*, u32 level, u32 name);
i64 receive(Socket*, Cursor&, u32 flags, u64 name, u32* name_bytes, u32* out_flags, Passed** passed);
i64 send(Socket*, Cursor&, u32 flags, u64 name, u32 name_bytes, Passed* passed);

} // namespace gk
