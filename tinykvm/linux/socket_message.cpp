// Sends and receives on host sockets, directly from and to guest memory.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/linux/handlers.hpp"
#include "tinykvm/linux/socket_address.hpp"

namespace tinykvm {

namespace {

// More than any datagram, and enough for one call on a stream.
constexpr std::uint64_t kMessageBytes = 1 << 20;
// Not included: MSG_FASTOPEN, which would connect without a check of the address; ancillary data; zero-copy.
constexpr std::uint32_t kSendFlags = MSG_OOB | MSG_DONTROUTE | MSG_EOR | MSG_CONFIRM | MSG_MORE;
constexpr std::uint32_t kReceiveFlags = MSG_OOB | MSG_PEEK | MSG_TRUNC;

struct Message {
    const Handle* socket = nullptr;
    abi::SocketMessage guest{};
    Buffers buffers;
    std::vector<std::byte> bounce; // used if a datagram has more ranges than one host call takes
    iovec bounce_run{};
    std::int64_t error = 0;

    msghdr header() {
        msghdr header{};
        header.msg_iov = bounce.empty() ? buffers.runs.data() : &bounce_run;
        header.msg_iovlen = bounce.empty() ? std::min<std::size_t>(buffers.runs.size(), kMaxIov) : 1;
        return header;
    }
};

Message load_message(CallContext& call, const CallArgs& args, Access access) {
    Message message;
    message.socket = use_socket(call, args.arg[0], message.error);
    if (!message.socket)
        return message;
    const auto guest = call.memory.load<abi::SocketMessage>(address_arg(args.arg[1]));
    if (!guest) {
        message.error = -EFAULT;
        return message;
    }
    message.guest = *guest;
    const Vector vector = load_vector(call.memory, GuestVirt(guest->iov), guest->iov_count);
    message.error = vector.error;
    if (message.error != 0)
        return message;
    const bool stream = message.socket->info.type == SOCK_STREAM;
    if (!stream && access == Access::read && vector.bytes > kMessageBytes) {
        message.error = -EMSGSIZE;
        return message;
    }
    message.buffers =
        gather_vector(call.memory, vector, access, kMessageBytes, stream ? Faults::partial : Faults::whole);
    message.error = message.buffers.error;
    if (message.error == 0 && !stream && message.buffers.runs.size() > kMaxIov) {
        message.bounce.resize(message.buffers.bytes);
        message.bounce_run = {message.bounce.data(), message.bounce.size()};
    }
    return message;
}

bool fill_bounce(GuestMemory& memory, Message& message) {
    std::byte* to = message.bounce.data();
    for (const iovec& run : message.buffers.runs) {
        if (!memory.copy_out(to, run))
            return false;
        to += run.iov_len;
    }
    return true;
}

bool empty_bounce(GuestMemory& memory, const Message& message, std::size_t bytes) {
    const std::byte* from = message.bounce.data();
    for (const iovec& run : message.buffers.runs) {
        const std::size_t n = std::min(bytes, run.iov_len);
        if (!memory.copy_in({run.iov_base, n}, from))
            return false;
        from += n;
        bytes -= n;
    }
    return true;
}

} // namespace

std::int64_t call_sendmsg(CallContext& call, const CallArgs& args) {
    Message message = load_message(call, args, Access::read);
    if (message.error != 0)
        return message.error;
    if (message.guest.flags & MSG_FASTOPEN)
        return -EOPNOTSUPP;
    if (!message.bounce.empty() && !fill_bounce(call.memory, message))
        return -EFAULT;
    msghdr header = message.header();
    Destination to;
    if (message.guest.name != 0 && message.guest.name_bytes != 0) {
        to = check_destination(call, "send", *message.socket,
                               load_address(call.memory, GuestVirt(message.guest.name), message.guest.name_bytes));
        if (to.error != 0)
            return to.error;
        header.msg_name = to.address.get();
        header.msg_namelen = to.address.length;
    }
    const int flags = static_cast<int>(message.guest.flags & kSendFlags) | MSG_DONTWAIT | MSG_NOSIGNAL;
    const std::int64_t sent = result_of(::sendmsg(message.socket->file->fd(), &header, flags));
    if (sent >= 0 && call.handles.is_shared(int_arg(args.arg[0])))
        call.handles.note_answer();
    return sent;
}

namespace {

// Stores a given datagram as recvmsg would.
std::int64_t put_given(CallContext& call, const CallArgs& args, const Message& message, const Datagram& given) {
    std::size_t done = 0;
    for (const iovec& run : message.buffers.runs) {
        const std::size_t n = std::min(given.bytes.size() - done, run.iov_len);
        if (!call.memory.copy_in({run.iov_base, n}, given.bytes.data() + done))
            return -EFAULT;
        done += n;
    }
    abi::SocketMessage reply = message.guest;
    reply.flags = done < given.bytes.size() ? MSG_TRUNC : 0;
    reply.name_bytes = 0;
    if (message.guest.name != 0) {
        const std::size_t room = std::min<std::size_t>(message.guest.name_bytes, given.from_bytes);
        if (!call.memory.write(GuestVirt(message.guest.name), std::as_bytes(std::span(&given.from, 1)).first(room)))
            return -EFAULT;
        reply.name_bytes = given.from_bytes;
    }
    const std::size_t reported = message.guest.flags & MSG_TRUNC ? given.bytes.size() : done;
    return call.memory.store(address_arg(args.arg[1]), reply) ? static_cast<std::int64_t>(reported) : -EFAULT;
}

} // namespace

std::int64_t call_recvmsg(CallContext& call, const CallArgs& args) {
    Message message = load_message(call, args, Access::write);
    if (message.error != 0)
        return message.error;
    if (message.guest.flags & MSG_ERRQUEUE)
        return -EAGAIN; // the error queue is delivered as ancillary data, which is not supported
    SocketAddress from;
    msghdr header = message.header();
    std::optional<Datagram> given;
    if (call.handles.receive_given(int_arg(args.arg[0]), (message.guest.flags & MSG_PEEK) != 0, given)) {
        if (!given)
            return -EAGAIN;
        return put_given(call, args, message, *given);
    }
    header.msg_name = from.get();
    header.msg_namelen = sizeof from.storage;
    const int flags = static_cast<int>(message.guest.flags & kReceiveFlags) | MSG_DONTWAIT;
    const ssize_t n = ::recvmsg(message.socket->file->fd(), &header, flags);
    if (n < 0)
        return -errno;
    if (!message.bounce.empty() &&
        !empty_bounce(call.memory, message, std::min(static_cast<std::size_t>(n), message.bounce.size())))
        return -EFAULT;
    abi::SocketMessage reply = message.guest;
    reply.flags = static_cast<std::uint32_t>(header.msg_flags);
    reply.name_bytes = 0;
    if (message.guest.name != 0) {
        const std::size_t room =
            std::min<std::size_t>({message.guest.name_bytes, header.msg_namelen, sizeof from.storage});
        if (!call.memory.write(GuestVirt(message.guest.name), std::as_bytes(std::span(&from.storage, 1)).first(room)))
            return -EFAULT;
        reply.name_bytes = header.msg_namelen;
    }
    return call.memory.store(address_arg(args.arg[1]), reply) ? n : -EFAULT;
}

} // namespace tinykvm
