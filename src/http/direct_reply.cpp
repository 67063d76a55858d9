#include "src/http/direct_reply.hpp"

#include <sys/socket.h>

#include "src/http/body.hpp"
#include "src/http/reply_head.hpp"
#include "src/http/rewrite.hpp"

namespace kvmserver::http {

std::optional<DirectReply> DirectReply::allowed(int socket, const RequestHead& head, const Options& options,
                                                const std::atomic<bool>& draining) {
    if (head.minor_version == 0 || head.upgrade || head.expects_continue)
        return std::nullopt;
    return DirectReply(socket, head, options, draining);
}

bool DirectReply::send(std::string_view reply) {
    HeadEnd end;
    ReplyHead head;
    if (draining_->load(std::memory_order_relaxed) ||
        end.feed(reply, options_->limits.of_reply()) != HeadEnd::State::found ||
        parse_reply_head(reply.substr(0, end.size()), options_->limits,
                         {.head_request = head_request_, .upgrade = false}, head) ||
        head.interim())
        return false;
    Body body(head.body);
    const std::size_t bytes = body.feed(reply.substr(end.size()));
    if (body.fault() || !body.done())
        return false;
    append_reply(bytes_, head, closes_ ? ClientConnection::close : ClientConnection::keep, {});
    bytes_.append(reply.substr(end.size(), bytes));
    status_ = head.status;
    const ssize_t n = ::send(socket_, bytes_.data(), bytes_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    sent_ = n > 0 ? static_cast<std::size_t>(n) : 0; // on an error, sending the rest fails too
    if (closes_ && rest().empty())
        ::shutdown(socket_, SHUT_WR);
    when_ = Clock::now();
    return true;
}

} // namespace kvmserver::http
