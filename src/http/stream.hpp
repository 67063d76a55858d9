// A byte stream: a socket, optionally with TLS. Only its .cpp includes Asio's TLS headers for reading and writing.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/http/net.hpp"
#include "src/http/tls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::http {

// Notified of reads that no coroutine waits for.
class ReadSink {
public:
    virtual void read_done(error_code error, std::size_t bytes) = 0;
    virtual void watch_done(error_code error) = 0; // the peer is gone

protected:
    ~ReadSink() = default;
};

class Stream {
public:
    explicit Stream(asio::io_context& io);
    ~Stream();
    void assign(tinykvm::UniqueFd socket);             // throws HostError
    enum class Handshake { done, failed, plain_http }; // plain_http: the client sent a request without TLS
    Handshake start_tls(TlsContext context, Yield& yield);
    // The other way: this side is the client. The peer's certificate must be for `host`. Sets `why` if it fails.
    bool start_tls_as_client(TlsContext context, const std::string& host, std::string& why, Yield& yield);
    bool secure() const { return tls_ != nullptr; }
    bool open() const { return socket_.is_open(); }
    int socket() { return socket_.native_handle(); }

    std::size_t read_some(std::span<char> room, error_code& error, Yield& yield);
    std::size_t write_some(std::string_view bytes, error_code& error, Yield& yield);
    void start_read(std::span<char> room, std::shared_ptr<ReadSink> sink);
    // Watches until the connection breaks (not: until it ends); reads nothing.
    void start_watch(std::shared_ptr<ReadSink> sink);

    std::uint64_t unsent(); // bytes in the kernel's queue that the peer has not acknowledged
    bool has_input();       // bytes have arrived that were not read yet
    // What has arrived, without reading it; as much as there is room for.
    std::size_t peek(std::span<char> room);
    // Waits until at least so many unread bytes are there, or no more will come.
    void wait_input(int bytes, error_code& error, Yield& yield);
    tinykvm::UniqueFd release(); // gives the socket away; without TLS only
    bool broke();                // whether an error is pending; clears it
    void cancel();               // pending operations end with operation_aborted
    void close();
    void close_hard(); // the peer sees a reset
    // Ends the sending direction, with TLS also by close_notify. May wait for the peer: set a deadline.
    void finish_sending(Yield& yield);

private:
    struct Tls;
    Socket socket_;
    std::unique_ptr<Tls> tls_;
};

} // namespace kvmserver::http
