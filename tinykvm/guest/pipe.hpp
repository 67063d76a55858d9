// Pipes: a ring of bytes between readers and writers. pipe(2) makes one end of each kind. Each open of a named pipe, or
// of a pipe through /proc/self/fd, adds an end.
#pragma once
#include "tinykvm/guest/calls.hpp"

namespace gk {

struct PipeEnd;
struct Pipe {
    u8* data = nullptr;
    u32 bytes = 0;          // size of the ring
    u32 head = 0, used = 0; // bytes [head, head+used) modulo the size
    PipeEnd* ends = nullptr;
    u32 readers = 0, writers = 0;
    // Ends opened so far. A thread that waits in open(2) sees by these that the other end came, even if it is gone
    // again.
    u32 readers_ever = 0, writers_ever = 0;
    bool named = false; // outlives its ends
};
struct PipeEnd : File {
    Pipe* pipe = nullptr;
    PipeEnd* next = nullptr;
    bool reads = false, writes = false;
    u64 node = 0; // named pipes: the own::Node, to which the end holds a reference
};
inline PipeEnd* pipe_end(File* f) { return f->kind == Kind::pipe ? static_cast<PipeEnd*>(f) : nullptr; }

Pipe* make_pipe(); // null: no memory
void free_pipe(Pipe*);
// A new end with the access mode and O_NONBLOCK of `flags`; null: no memory.
PipeEnd* make_end(Pipe*, u32 flags);
i64 set_pipe_size(Pipe*, u64 bytes);       // F_SETPIPE_SZ
extern void (*named_end_closed)(PipeEnd*); // own_fifo.cpp

} // namespace gk
