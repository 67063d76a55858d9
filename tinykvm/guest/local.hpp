// Sockets whose both ends are in the machine: pairs, and connections of the program to where it listens itself. They
// are guest memory and nothing else, so an image holds them as they are.
#pragma once
#include "tinykvm/guest/socket.hpp"

namespace gk {

// Files that travel with bytes (SCM_RIGHTS): whoever reads the first of these gets them, and reads no further than the
// last.
struct Passed {
    Passed* next;
    u64 begin, end; // positions in the stream
    u32 count;
    File* files[1]; // count of them, each with a reference
};
inline constexpr u32 kMaxPassed = 253; // SCM_MAX_FD
Passed* make_passed(u32 count);
void drop_passed(Passed*); // with its files

struct LocalEnd;
// One direction. A ring of bytes (SOCK_STREAM) or of messages that are each preceded by their length.
struct Ring {
    u8* data = nullptr;
    u32 size = 0, head = 0, used = 0; // bytes [head, head+used) modulo the size
    u64 taken = 0;                    // position of the head in the stream
    LocalEnd* reader = nullptr;
    LocalEnd* writer = nullptr;
    Passed* first = nullptr;
    Passed* last = nullptr;
    // Urgent data: where the last is, or was when it is not in line; and the byte itself until MSG_OOB has read it.
    bool has_mark = false, urgent_waits = false, in_line = false;
    u8 urgent = 0;
    u64 mark = 0;
};

struct LocalEnd {
    Socket* socket = nullptr;
    Ring* in = nullptr;  // what this end reads
    Ring* out = nullptr; // what it writes
    bool read_shut = false, write_shut = false;
    bool reset = false; // the other end was closed with unread bytes
    u32 peer_bytes = 0; // the other end's address
    u8 peer[kAddressRoom] = {};
};

// Gives two sockets of one type each other as ends; -ENFILE when there is no room.
i64 join_ends(Socket* a, Socket* b);

} // namespace gk
