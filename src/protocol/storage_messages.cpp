#include "src/protocol/storage_messages.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace kvmserver::protocol {

namespace {

constexpr std::size_t kMaxReason = 512; // bytes

struct Addresses {
    StorageAddress to, from;
};

bool is_sound(const StorageAddress& address) {
    return address.bytes >= sizeof(sa_family_t) && address.bytes <= sizeof address.storage;
}

} // namespace

bool send_storage_request(int socket, const StorageAddress& to, const StorageAddress& from, int stream) {
    const Addresses both{to, from};
    return send_packet(socket, std::as_bytes(std::span(&both, 1)), std::span(&stream, 1), Wait::yes);
}

StorageCame receive_storage_request(int socket, StorageRequest& request) {
    Addresses both;
    bool again = false;
    auto packet = receive_packet(socket, std::as_writable_bytes(std::span(&both, 1)), kMaxFiles, Wait::no, &again);
    request = {};
    if (!packet)
        return again ? StorageCame::nothing : StorageCame::end;
    if (!packet->files.empty())
        request.stream = std::move(packet->files.front());
    const std::size_t files = packet->files.size();
    if (packet->cut || packet->bytes != sizeof both || files > 1 || (files == 0 && !packet->lost) ||
        !is_sound(both.to) || !is_sound(both.from))
        return StorageCame::nonsense;
    request.to = both.to;
    request.from = both.from;
    return StorageCame::request;
}

bool send_storage_answer(int socket, const StorageAnswer& answer) {
    std::array<std::byte, sizeof(int) + kMaxReason> bytes;
    const std::size_t length = std::min(answer.reason.size(), kMaxReason);
    std::memcpy(bytes.data(), &answer.error, sizeof answer.error);
    std::memcpy(bytes.data() + sizeof answer.error, answer.reason.data(), length);
    return send_packet(socket, std::span(bytes).first(sizeof answer.error + length), {}, Wait::no);
}

std::optional<StorageAnswer> receive_storage_answer(int socket) {
    std::array<std::byte, sizeof(int) + kMaxReason> bytes;
    const auto packet = receive_packet(socket, bytes, 0, Wait::yes);
    StorageAnswer answer;
    if (!packet || packet->cut || packet->bytes < sizeof answer.error)
        return std::nullopt;
    std::memcpy(&answer.error, bytes.data(), sizeof answer.error);
    answer.reason.assign(reinterpret_cast<const char*>(bytes.data()) + sizeof answer.error,
                         packet->bytes - sizeof answer.error);
    return answer;
}

} // namespace kvmserver::protocol
