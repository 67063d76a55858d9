// One client connection: reads request heads, serves each request, then continues or closes.
#pragma once
#include <memory>
#include <string>

#include "src/http/buffer.hpp"
#include "src/http/connection_table.hpp"
#include "src/http/deadline.hpp"
#include "src/http/pace.hpp"
#include "src/http/request_head.hpp"
#include "src/http/stream.hpp"

namespace kvmserver::http {

class Worker;
class Exchange;

// A client connection that was accepted.
struct Accepted {
    tinykvm::UniqueFd socket;
    std::string ip;
    TlsContext tls;
    std::unique_ptr<ConnectionTable::Place> place; // null: it does not count against limits
};

// What happens to the connection after a request.
enum class Next {
    keep,
    linger, // the reply is complete, but the client may still be sending: let it read the reply before closing
    cut,    // close so that the client cannot mistake the reply for a complete one
};

class Connection final : public std::enable_shared_from_this<Connection>, private ReadSink, private Deadline::Owner {
public:
    Connection(Worker& worker, std::string client_ip, TlsContext tls, std::unique_ptr<ConnectionTable::Place> place);
    ~Connection();
    void start(tinykvm::UniqueFd socket);
    // Call on the worker's thread:
    void stop();          // cuts the connection
    void close_if_idle(); // if it is between requests
    void give_way();      // the same, to make room for another client

    // The rest is for Exchange.
    Worker& worker() { return worker_; }
    Stream& client() { return client_; }
    Buffer& in() { return in_; }
    Deadline& deadline() { return deadline_; }
    Pace& sending() { return sending_; }
    Pace& receiving() { return receiving_; }
    const std::string& client_ip() const { return client_ip_; }
    Clock::time_point request_began() const { return began_; }
    // Waits for more bytes from the client. Returns false if the client has closed its side, or after a cancel().
    bool fill(Yield& yield);
    bool client_ended() const { return ended_; }
    bool client_broke() const { return ended_ && !clean_end_; }
    // Reads ahead a little while nothing waits for bytes, so that a client's disappearance is noticed.
    void watch();
    // The same without reading: notices only a reset.
    void watch_break();

private:
    std::chrono::milliseconds drain_patience() const;
    void run(Yield& yield);
    bool passed_on(Yield& yield);
    void serve(Yield& yield);
    void refuse_plain(Yield& yield);
    bool next_head(Yield& yield);
    bool wait_first_byte(Yield& yield);
    Next refuse(const Fault& fault, Yield& yield);
    void linger(Yield& yield);
    void read_done(error_code error, std::size_t bytes) override;
    void watch_done(error_code error) override;
    void deadline_passed() override;
    void note_end(error_code error);
    bool interrupted() const { return expired_ || stopping_; }

    Worker& worker_;
    Stream client_;
    TlsContext tls_;
    std::string client_ip_;
    Buffer in_;
    Deadline deadline_;
    Pace sending_, receiving_; // of the client: replies to it, bodies from it
    Event arrived_;
    std::string head_bytes_; // owns what head_ points into
    RequestHead head_;
    Clock::time_point began_;
    Exchange* exchange_ = nullptr; // the current request's, or null
    bool reading_ = false, watching_ = false;
    bool ended_ = false, clean_end_ = false;
    bool idle_ = false, expired_ = false, stopping_ = false;
    bool fresh_ = true; // no request has arrived yet
    std::unique_ptr<ConnectionTable::Place> place_;
};

} // namespace kvmserver::http
