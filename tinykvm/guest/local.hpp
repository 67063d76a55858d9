// Sockets with both ends in the machine: socket pairs, and connections of the program to its own listeners. They are
// guest memory only, so a snapshot keeps them as they are.
#pragma once
#include "tinykvm/guest/socket.hpp"

namespace gk {

// Files sent along with bytes (SCM_RIGHTS). The read that takes the first of these bytes receives the files, and stops
// at the last of them.
struct Passed {
    Passed* next;
    u64 begin, end; // positions in the stream
    u32 count;
    File* files[1]; // `count` entries, each with a reference
};
inline constexpr u32 kMaxPassed = 253; // SCM_MAX_FD
Passed* make_passed(u32 count);
void drop_passed(Passed*); // and the references to its files

struct LocalEnd;
// One direction: a ring of bytes (SOCK_STREAM), or of messages, each preceded by its length.
struct Ring {
    u8* data = nullptr;
    u32 size = 0, head = 0, used = 0; // bytes [head, head+used) modulo the size
    u64 taken = 0;                    // bytes read so far: the head's position in the stream
    LocalEnd* reader = nullptr;
    LocalEnd* writer = nullptr;
    Passed* first = nullptr;
    Passed* last = nullptr;
    // Urgent data: `mark` is the position of the last urgent byte. With SO_OOBINLINE the byte is in the ring; without,
    // `urgent` holds it until a MSG_OOB read takes it.
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
    u32 peer_bytes = 0; // length of the other end's address
    u8 peer[kAddressRoom] = {};
};

// Connects two sockets of the same type to each other; -ENFILE without memory.
i64 join_ends(Socket* a, Socket* b);

} // namespace gk
