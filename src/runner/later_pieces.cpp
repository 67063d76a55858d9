#include "src/runner/later_pieces.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <utility>

#include "src/protocol/worker_messages.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

LaterPieces::LaterPieces(UniqueFd link, std::string function)
    : link_(std::move(link)), function_(std::move(function)), receiver_([this] { receive(); }) {}

LaterPieces::~LaterPieces() {
    ::shutdown(link_.get(), SHUT_RDWR);
    receiver_.join();
}

void LaterPieces::receive() {
    while (auto received = protocol::receive(link_.get(), protocol::Wait::yes)) {
        if (received->message.kind != protocol::Kind::later || !received->fd)
            break;
        const std::lock_guard lock(mutex_);
        files_.emplace(received->message.left, std::move(received->fd));
        changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
}

int LaterPieces::wait_for(std::size_t piece) {
    std::unique_lock lock(mutex_);
    if (!ended_ && !files_.contains(piece) && asked_.insert(piece).second) {
        protocol::Message message;
        message.kind = protocol::Kind::later;
        message.left = static_cast<std::uint32_t>(piece);
        protocol::send(link_.get(), message); // otherwise it comes in its turn
    }
    changed_.wait(lock, [&] { return ended_ || files_.contains(piece); });
    const auto found = files_.find(piece);
    if (found == files_.end())
        throw UserError(ExitCode::unreachable,
                        fmt::format("{}: a chunk of its snapshot did not come from the bucket", function_));
    return found->second.get();
}

std::unique_ptr<ByteSource> open_received(int list, ReceivedPieces pieces, const std::string& function) {
    std::shared_ptr<ArrivingPieces> arriving;
    if (pieces.later)
        arriving = std::make_shared<LaterPieces>(std::move(pieces.later), function);
    return open_pieces_source(list, std::move(pieces.files), std::move(arriving));
}

} // namespace kvmserver
