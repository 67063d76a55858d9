// Messages of a function's process to the daemon about connections to the function's storage, over a SEQPACKET socket
// of their own. Either side may be compromised: both check what they receive.
//
// For each connection the process makes a pair of sockets, and sends one end with the address that its program connects
// to. The daemon answers at once: the connection is made, or why it is not. What the storage cannot take then ends the
// connection. A process sends its next request after the answer to the one before.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "src/protocol/packet.hpp"

namespace kvmserver::protocol {

struct StorageAddress {
    sockaddr_storage storage{};
    std::uint32_t bytes = 0;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct StorageRequest {
    StorageAddress to, from; // as the program of the storage is to see them
    tinykvm::UniqueFd stream;
};
// Blocks for a moment only: one request is under way at a time. False if the socket is no longer usable.
bool send_storage_request(int socket, const StorageAddress& to, const StorageAddress& from, int stream);

enum class StorageCame { request, nothing, end, nonsense };
// Never blocks. `request` receives the file even on `nonsense`: see receive_request() (cache_messages.hpp).
StorageCame receive_storage_request(int socket, StorageRequest& request);

struct StorageAnswer {
    int error = 0;      // 0: connected; ENOENT: the storage does not listen there
    std::string reason; // for the function's log; "": none
};
bool send_storage_answer(int socket, const StorageAnswer& answer); // never blocks
// Waits. Nothing: the daemon has gone, or said something else.
std::optional<StorageAnswer> receive_storage_answer(int socket);

} // namespace kvmserver::protocol
