#include "src/link/machine_link.hpp"

namespace kvmserver::link {

namespace {

std::span<std::byte> bytes_of(Message& message) { return std::as_writable_bytes(std::span(&message, 1)); }

} // namespace

bool send_files(int socket, const Message& message, std::span<const int> files) {
    return send_packet(socket, std::as_bytes(std::span(&message, 1)), files, Wait::no);
}

bool send(int socket, const Message& message, int fd) {
    return send_files(socket, message, std::span(&fd, fd >= 0 ? 1 : 0));
}

std::optional<Received> receive(int socket, Wait wait, bool* again) {
    Received out;
    auto packet = receive_packet(socket, bytes_of(out.message), 1, wait, again);
    if (!packet || packet->bytes != sizeof(Message) || packet->cut || packet->lost)
        return std::nullopt;
    if (!packet->files.empty())
        out.fd = std::move(packet->files.front());
    return out;
}

std::optional<ReceivedFiles> receive_files(int socket) {
    ReceivedFiles out;
    auto packet = receive_packet(socket, bytes_of(out.message), kMostFiles, Wait::yes);
    if (!packet || packet->bytes != sizeof(Message) || packet->cut)
        return std::nullopt;
    out.files = std::move(packet->files);
    out.lost = packet->lost;
    return out;
}

} // namespace kvmserver::link
