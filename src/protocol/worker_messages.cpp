#include "src/protocol/worker_messages.hpp"

#include <sys/socket.h>

namespace kvmserver::protocol {

namespace {

std::span<std::byte> bytes_of(Message& message) { return std::as_writable_bytes(std::span(&message, 1)); }

} // namespace

bool send_files(int socket, const Message& message, std::span<const int> files) {
    return send_packet(socket, std::as_bytes(std::span(&message, 1)), files, Wait::no);
}

std::pair<tinykvm::UniqueFd, tinykvm::UniqueFd> make_channel() {
    auto pair = make_pair();
    // Linux doubles the value (socket(7)); if it fails, the default may be enough.
    const int bytes = 2 * static_cast<int>(kMaxInline);
    for (const auto* end : {&pair.first, &pair.second})
        ::setsockopt(end->get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    return pair;
}

bool send_bytes(int socket, const Message& message, std::string_view bytes, Wait wait, int fd) {
    return send_packet(socket, std::as_bytes(std::span(&message, 1)), std::span(&fd, fd >= 0 ? 1 : 0), wait,
                       std::as_bytes(std::span(bytes)));
}

bool send(int socket, const Message& message, int fd) {
    return send_files(socket, message, std::span(&fd, fd >= 0 ? 1 : 0));
}

std::optional<Received> receive(int socket, Wait wait, bool* again, std::span<char> room) {
    Received out;
    auto packet = receive_packet(socket, bytes_of(out.message), 1, wait, again, std::as_writable_bytes(room));
    if (!packet || packet->bytes < sizeof(Message) || packet->cut || packet->lost)
        return std::nullopt;
    out.bytes = std::string_view(room.data(), packet->bytes - sizeof(Message));
    if (!packet->files.empty())
        out.fd = std::move(packet->files.front());
    return out;
}

std::optional<ReceivedFiles> receive_files(int socket) {
    ReceivedFiles out;
    auto packet = receive_packet(socket, bytes_of(out.message), kMaxFiles, Wait::yes);
    if (!packet || packet->bytes != sizeof(Message) || packet->cut)
        return std::nullopt;
    out.files = std::move(packet->files);
    out.lost = packet->lost;
    return out;
}

} // namespace kvmserver::protocol
