// Named pipes in the machine's own folders.
#include "tinykvm/guest/own_files.hpp"
#include "tinykvm/guest/pipe.hpp"

namespace gk::own {

namespace {

Node* node_of(PipeEnd* end) { return reinterpret_cast<Node*>(end->node); }

void end_closed(PipeEnd* end) {
    Node* n = node_of(end);
    note(n, end->writes ? kNoteCloseWrite : kNoteClose);
    Pipe* p = end->pipe;
    if (!p->ends && n->fifo == p) { // unread bytes are lost
        n->fifo = nullptr;
        free_pipe(p);
    }
    drop(n);
}

} // namespace

i64 open_fifo(Node* n, u32 flags) {
    named_end_closed = end_closed;
    const u32 mode = flags & O_ACCMODE_;
    if (mode == O_ACCMODE_)
        return -EINVAL;
    if (!n->fifo && !(n->fifo = make_pipe()))
        return -ENOMEM;
    Pipe* p = n->fifo;
    p->named = true;
    if (mode == O_WRONLY_ && (flags & O_NONBLOCK_) && !p->readers) {
        if (!p->ends) {
            n->fifo = nullptr;
            free_pipe(p);
        }
        return -ENXIO;
    }
    const u32 readers = p->readers_ever, writers = p->writers_ever;
    PipeEnd* end = make_end(p, flags);
    if (!end)
        return -ENOMEM;
    end->node = address(n);
    keep(n);
    note(n, kNoteOpen);
    notify_io(); // wakes threads that wait in open(2)
    while (mode != O_RDWR_ && !(flags & O_NONBLOCK_)) {
        if (mode == O_WRONLY_ ? p->readers || p->readers_ever != readers : p->writers || p->writers_ever != writers)
            break;
        if (wait_io(kNever) == Wake::signal) {
            unref(end);
            return -ERESTARTSYS;
        }
    }
    return install_or_release(end, (flags & O_CLOEXEC_) != 0);
}

} // namespace gk::own
