// Moves the bytes of a machine's connections: to and from sockets, or in one piece for a client in this process.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/event_loop/event_loop.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

void reset_at_close(const UniqueFd& fd) {
    const linger now{1, 0};
    if (fd)
        ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

msghdr message_of(std::vector<iovec>& ranges) {
    msghdr message{};
    message.msg_iov = ranges.data();
    message.msg_iovlen = std::min<std::size_t>(ranges.size(), 64);
    return message;
}

} // namespace

// Puts the first bytes of a connection in memory where receive() would put those of a socket.
bool EventLoop::deliver(Machine& machine, std::uint32_t slot, const ConnView& view, std::string_view bytes) {
    std::vector<iovec> ranges;
    if (bytes.size() > view.rx_room() || !machine.connections().rx_ranges(slot, view, ranges))
        return false;
    std::size_t done = 0;
    for (const iovec& range : ranges) {
        const std::size_t part = std::min(range.iov_len, bytes.size() - done);
        std::memcpy(range.iov_base, bytes.data() + done, part);
        done += part;
    }
    machine.connections().received(slot, view, static_cast<std::uint32_t>(done));
    client(slot).asked = true;
    moved_ += done;
    return true;
}

// Closes a connection in memory with all that the program has written. None of it was sent before.
void EventLoop::reply_whole(Machine& machine, std::uint32_t slot, const ConnView& view) {
    std::vector<iovec> ranges;
    if (!machine.connections().tx_ranges(slot, view, ranges)) {
        contract_broken_ = true;
        return;
    }
    std::string reply;
    reply.reserve(view.tx_pending());
    for (const iovec& range : ranges)
        reply.append(static_cast<const char*>(range.iov_base), range.iov_len);
    moved(reply.size());
    client(slot).memory->reply(std::move(reply), view.reset ? request::Closing::reset : request::Closing::clean);
    close_client(machine, slot, false);
}

// Switches a connection in memory to a socket. Returns false if there is no socket; the connection has then failed.
bool EventLoop::have_socket(Machine& machine, std::uint32_t slot) {
    Client& c = client(slot);
    if (!c.memory)
        return true;
    c.fd = c.memory->connect();
    c.memory.reset();
    if (c.fd)
        return true;
    machine.connections().set_error(slot, ECONNRESET);
    c.failed = true;
    return false;
}

void EventLoop::close_client(Machine& machine, std::uint32_t slot, bool reset) {
    Client& c = client(slot);
    if (c.open) {
        if (reset)
            reset_at_close(c.fd);
        const auto closed = std::move(c.closed);
        --(c.outbound ? outbound_ : open_);
        c = Client{};
        if (closed)
            closed();
    }
    machine.connections().free(slot);
}

void EventLoop::fail_connections(request::Outcome outcome) {
    for (Client& c : clients_) {
        if (!c.closed)
            continue;
        c.report_outcome(outcome);
        reset_at_close(c.fd);
        const auto closed = std::move(c.closed);
        c = Client{};
        closed();
    }
    drop_connections(true);
}

void EventLoop::drop_connections(bool reset) {
    if (reset)
        for (const Client& c : clients_)
            reset_at_close(c.fd);
    clients_.clear();
    open_ = outbound_ = 0;
}

bool EventLoop::send_pending(Machine& machine, std::uint32_t slot, ConnView& view) {
    Client& c = client(slot);
    bool news = false;
    if ((view.tx_pending() > 0 || view.shut_write) && !have_socket(machine, slot))
        return true;
    while (view.tx_pending() > 0 && !c.failed) {
        std::vector<iovec> ranges;
        if (!machine.connections().tx_ranges(slot, view, ranges)) {
            contract_broken_ = true;
            return false;
        }
        msghdr message = message_of(ranges);
        const ssize_t n = ::sendmsg(c.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
                break;
            machine.connections().set_error(slot, errno);
            c.failed = true;
            return true;
        }
        if (!c.outbound)
            moved(static_cast<std::size_t>(n));
        alive_ns_ = host_mono_ns();
        c.asked = false;
        c.answered = true;
        machine.connections().sent(slot, view, static_cast<std::uint32_t>(n));
        news |= view.want_tx;
        if (!machine.connections().view(slot, view)) {
            contract_broken_ = true;
            return false;
        }
    }
    if (view.tx_pending() == 0 && view.shut_write && !c.shut && !c.failed) {
        ::shutdown(c.fd.get(), SHUT_WR);
        c.shut = true;
    }
    return news;
}

bool EventLoop::receive(Machine& machine, std::uint32_t slot, ConnView& view) {
    Client& c = client(slot);
    if (c.eof || c.failed || view.rx_room() == 0 || (c.memory && !c.memory->more_follows() && !c.memory->gone()))
        return false;
    if (!have_socket(machine, slot))
        return true;
    std::vector<iovec> ranges;
    if (!machine.connections().rx_ranges(slot, view, ranges)) {
        contract_broken_ = true;
        return false;
    }
    msghdr message = message_of(ranges);
    const ssize_t n = ::recvmsg(c.fd.get(), &message, MSG_DONTWAIT);
    if (n > 0) {
        machine.connections().received(slot, view, static_cast<std::uint32_t>(n));
        if (!c.outbound) {
            moved(static_cast<std::size_t>(n));
            heard(c);
        }
        return true;
    }
    if (n == 0) {
        c.eof = true;
        machine.connections().set_eof(slot);
        return true;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return false;
    machine.connections().set_error(slot, errno);
    c.failed = true;
    return true;
}

void EventLoop::connected(Machine&, std::uint32_t slot, UniqueFd stream) {
    Client& c = client(slot);
    c = Client{};
    c.open = c.outbound = true;
    c.fd = std::move(stream);
    ++outbound_;
}

bool EventLoop::is_over(Machine& machine) const {
    if (open_ != 0)
        return false;
    for (std::uint32_t slot = 0; outbound_ != 0 && slot < clients_.size(); ++slot) {
        ConnView view;
        if (clients_[slot].open && !clients_[slot].failed && machine.connections().view(slot, view) &&
            view.tx_pending() > 0)
            return false;
    }
    return true;
}

bool EventLoop::waits_for_neighbour(Machine& machine) const {
    for (std::uint32_t slot = 0; outbound_ != 0 && slot < clients_.size(); ++slot) {
        const Client& c = clients_[slot];
        ConnView view;
        if (c.open && c.outbound && !c.failed && !c.eof && machine.connections().view(slot, view) &&
            (view.want_rx || view.tx_pending() > 0))
            return true;
    }
    return false;
}

// Connections that the image could not keep (Connections::lose_all), once the program has closed them.
void EventLoop::free_lost(Machine& machine) {
    for (std::uint32_t slot = 0; slot < machine.connections().limit(); ++slot) {
        ConnView view;
        if ((slot >= clients_.size() || !clients_[slot].open) && machine.connections().view(slot, view) &&
            view.state == abi::kConnClosed)
            machine.connections().free(slot);
    }
}

bool EventLoop::exchange(Machine& machine) {
    bool news = false;
    for (std::uint32_t slot = 0; slot < clients_.size(); ++slot) {
        Client& c = clients_[slot];
        if (!c.open)
            continue;
        ConnView view;
        if (!machine.connections().view(slot, view)) {
            contract_broken_ = true;
            return true;
        }
        if (view.state == abi::kConnFree) { // only the host frees slots
            contract_broken_ = true;
            return true;
        }
        if (view.state == abi::kConnClosed && c.memory) {
            reply_whole(machine, slot, view);
            continue;
        }
        news |= send_pending(machine, slot, view);
        if (view.state == abi::kConnClosed && (view.tx_pending() == 0 || c.failed))
            close_client(machine, slot, view.reset);
    }
    free_lost(machine);
    return news;
}

void EventLoop::flush(Machine& machine, std::uint32_t slot) {
    ConnView view;
    if (slot >= clients_.size() || !clients_[slot].open)
        return;
    if (!machine.connections().view(slot, view)) {
        contract_broken_ = true;
        return;
    }
    send_pending(machine, slot, view);
}

} // namespace kvmserver
