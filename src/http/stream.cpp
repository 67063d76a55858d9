#include "src/http/stream.hpp"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>

#include <boost/asio/ssl/stream.hpp>

#include "tinykvm/base/error.hpp"

namespace kvmserver::http {

struct Stream::Tls {
    Tls(Socket& socket, TlsContext with) : context(std::move(with)), stream(socket, *context) {}
    TlsContext context; // keeps the context alive if the front replaces it
    asio::ssl::stream<Socket&> stream;
};

Stream::Stream(asio::io_context& io) : socket_(io) {}
Stream::~Stream() = default;

void Stream::assign(tinykvm::UniqueFd fd) {
    int family = 0;
    socklen_t size = sizeof family;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &family, &size) != 0)
        tinykvm::throw_errno("getsockopt of an upstream's socket");
    error_code error;
    close();
    socket_.assign(asio::generic::stream_protocol(family, 0), fd.get(), error);
    if (!error)
        fd.release(); // owned by the socket now
    if (!error)
        socket_.native_non_blocking(true, error);
    if (error)
        throw tinykvm::HostError(error.value(), "watch a socket");
}

Stream::Handshake Stream::start_tls(TlsContext context, Yield& yield) {
    tls_ = std::make_unique<Tls>(socket_, std::move(context));
    error_code error;
    tls_->stream.async_handshake(asio::ssl::stream_base::server, yield[error]);
    if (!error)
        return Handshake::done;
    if (error.category() != asio::error::get_ssl_category() || ERR_GET_REASON(error.value()) != SSL_R_HTTP_REQUEST)
        return Handshake::failed;
    tls_.reset(); // what follows goes to the socket itself
    return Handshake::plain_http;
}

bool Stream::start_tls_as_client(TlsContext context, const std::string& host, std::string& why, Yield& yield) {
    static constexpr unsigned char kProtocols[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
    tls_ = std::make_unique<Tls>(socket_, std::move(context));
    SSL* const native = tls_->stream.native_handle();
    in6_addr address{};
    const bool is_address =
        ::inet_pton(AF_INET, host.c_str(), &address) == 1 || ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
    const bool named =
        is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(native), host.c_str()) == 1
                   : SSL_set1_host(native, host.c_str()) == 1 && SSL_set_tlsext_host_name(native, host.c_str()) == 1;
    if (!named || SSL_set_alpn_protos(native, kProtocols, sizeof kProtocols) != 0) {
        why = "no certificate can be for this host";
        return false;
    }
    SSL_set_verify(native, SSL_VERIFY_PEER, nullptr);
    error_code error;
    tls_->stream.async_handshake(asio::ssl::stream_base::client, yield[error]);
    if (!error)
        return true;
    const long verified = SSL_get_verify_result(native);
    why = verified == X509_V_OK ? error.message() : X509_verify_cert_error_string(verified);
    return false;
}

std::size_t Stream::read_some(std::span<char> room, error_code& error, Yield& yield) {
    const auto buffer = asio::buffer(room.data(), room.size());
    return tls_ ? tls_->stream.async_read_some(buffer, yield[error]) : socket_.async_read_some(buffer, yield[error]);
}

std::size_t Stream::write_some(std::string_view bytes, error_code& error, Yield& yield) {
    const auto buffer = asio::buffer(bytes.data(), bytes.size());
    return tls_ ? tls_->stream.async_write_some(buffer, yield[error]) : socket_.async_write_some(buffer, yield[error]);
}

void Stream::start_read(std::span<char> room, std::shared_ptr<ReadSink> sink) {
    const auto buffer = asio::buffer(room.data(), room.size());
    auto done = [sink = std::move(sink)](error_code error, std::size_t bytes) { sink->read_done(error, bytes); };
    if (tls_)
        tls_->stream.async_read_some(buffer, std::move(done));
    else
        socket_.async_read_some(buffer, std::move(done));
}

void Stream::start_watch(std::shared_ptr<ReadSink> sink) {
    socket_.async_wait(Socket::wait_error, [sink = std::move(sink)](error_code error) { sink->watch_done(error); });
}

std::uint64_t Stream::unsent() {
    int bytes = 0;
    return ::ioctl(socket_.native_handle(), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

bool Stream::has_input() {
    char byte;
    return recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

std::size_t Stream::peek(std::span<char> room) {
    const ssize_t count = recv(socket_.native_handle(), room.data(), room.size(), MSG_PEEK | MSG_DONTWAIT);
    return count > 0 ? static_cast<std::size_t>(count) : 0;
}

void Stream::wait_input(int bytes, error_code& error, Yield& yield) {
    const auto wake_at = [this](int count) {
        ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVLOWAT, &count, sizeof count);
    };
    wake_at(bytes);
    socket_.async_wait(Socket::wait_read, yield[error]);
    if (socket_.is_open())
        wake_at(1);
}

tinykvm::UniqueFd Stream::release() {
    error_code ignored;
    return tinykvm::UniqueFd(socket_.release(ignored));
}

bool Stream::broke() {
    int pending = 0;
    socklen_t size = sizeof pending;
    return getsockopt(socket_.native_handle(), SOL_SOCKET, SO_ERROR, &pending, &size) == 0 && pending != 0;
}

void Stream::cancel() {
    error_code ignored;
    socket_.cancel(ignored);
}

void Stream::close() {
    error_code ignored;
    socket_.close(ignored);
}

void Stream::close_hard() {
    error_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    close();
}

void Stream::finish_sending(Yield& yield) {
    error_code ignored;
    if (tls_)
        tls_->stream.async_shutdown(yield[ignored]);
    socket_.shutdown(Socket::shutdown_send, ignored);
}

} // namespace kvmserver::http
