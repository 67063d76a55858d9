#include "src/runner/storage_client.hpp"

#include <cerrno>

#include "src/protocol/storage_messages.hpp"

namespace kvmserver {

using tinykvm::UniqueFd;

namespace {

protocol::StorageAddress message_of(const tinykvm::Neighbours::Address& address) {
    return {address.storage, static_cast<std::uint32_t>(address.bytes)};
}

} // namespace

UniqueFd StorageClient::connect(const Address& to, const Address& from) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return {};
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    const std::lock_guard lock(asking_);
    const auto answer = protocol::send_storage_request(daemon_.get(), message_of(to), message_of(from), theirs.get())
                            ? protocol::receive_storage_answer(daemon_.get())
                            : std::nullopt;
    const int error = answer ? answer->error : ECONNREFUSED;
    if (answer && answer->reason != noted_ && error != ENOENT) {
        noted_ = answer->reason;
        if (!noted_.empty())
            note_("storage: " + noted_);
    }
    errno = error;
    return error == 0 ? std::move(ours) : UniqueFd();
}

} // namespace kvmserver
