// A request and its reply on a socket pair whose other end the HTTP front holds. The front has checked the request and
// passes it on with `Connection: close`.
#pragma once
#include <string>

#include "src/admin/request.hpp"
#include "src/http/body.hpp"
#include "src/http/request_head.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::admin {

class SocketExchange final : public Exchange {
public:
    explicit SocketExchange(tinykvm::UniqueFd socket) : socket_(std::move(socket)) {}

    // Sets method and headers, and returns the target. Throws ClientGone.
    std::string read_head(Request& request);
    // Ends the reply.
    void finish();

    std::size_t read(std::span<std::byte> into) override;
    void begin(unsigned status, const Headers& headers, std::optional<std::uint64_t> length) override;
    void write(std::span<const std::byte> bytes) override;
    bool gone_within(int milliseconds) override;
    bool begun() const override { return begun_; }

private:
    std::size_t receive(std::span<std::byte> into); // 0: the front has closed its end
    void send(std::string_view bytes);
    void wait(short what, int milliseconds);
    bool fill(); // reads more bytes into in_

    tinykvm::UniqueFd socket_; // non-blocking
    std::string in_;           // bytes received after the head
    std::string payload_;      // decoded from a chunked body, not yet read
    http::Body body_;
    bool head_only_ = false, expects_continue_ = false, begun_ = false;
};

} // namespace kvmserver::admin
