// One byte stream: a socket, or TLS over it. The only file that includes Asio's TLS for reading and writing is its
// .cpp.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "src/http/net.hpp"
#include "src/http/tls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::http {

// Told about a read that no coroutine waits for.
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
    void assign(tinykvm::UniqueFd socket); // throws HostError
    error_code start_tls(TlsContext context, Yield& yield);
    bool secure() const { return tls_ != nullptr; }
    bool open() const { return socket_.is_open(); }
    int socket() { return socket_.native_handle(); }

    std::size_t read_some(std::span<char> room, error_code& error, Yield& yield);
    std::size_t write_some(std::string_view bytes, error_code& error, Yield& yield);
    void start_read(std::span<char> room, std::shared_ptr<ReadSink> sink);
    // Until the connection breaks (not: ends); reads nothing.
    void start_watch(std::shared_ptr<ReadSink> sink);

    std::uint64_t unsent(); // bytes that the kernel has and the peer has not
    bool has_input();       // bytes that have arrived and were not read yet
    bool broke();           // has an error pending, which this takes
    void cancel();          // what is under way ends with operation_aborted
    void close();
    void close_hard(); // the peer sees a reset
    // The end of what is sent, for the peer to see; TLS says so too. May wait for the peer (set a deadline).
    void finish_sending(Yield& yield);

private:
    struct Tls;
    Socket socket_;
    std::unique_ptr<Tls> tls_;
};

} // namespace kvmserver::http
