// One request: the connection to a program, the bodies in both directions, and the record for the observer.
//
// The connection's coroutine runs the exchange and relays the reply. A second coroutine relays a body that has not
// arrived completely, so that neither direction waits for the other. Each holds at most one buffer (64 KiB).
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "src/http/answer.hpp"
#include "src/http/body.hpp"
#include "src/http/connection.hpp"
#include "src/http/observer.hpp"
#include "src/http/options.hpp"
#include "src/http/reply_head.hpp"
#include "src/http/rewrite.hpp"
#include "src/http/trace_context.hpp"

namespace kvmserver::http {

class Exchange {
public:
    enum class Abort { none, client_gone, timed_out, too_slow, refused, stopped };

    Exchange(Connection& connection, const RequestHead& head, std::size_t head_bytes);
    ~Exchange(); // reports the request to the observer
    Next run(Yield& yield);
    // Answers a request that could not be parsed.
    Next refuse(const Fault& fault, Yield& yield);

    // Call while a coroutine is inside run():
    void abort(Abort why); // the first reason wins
    void expire();         // the deadline has passed
    // Whether the answer is pending. Another thread may write it to the client's socket.
    bool waits_for_answer() const { return phase_ == Phase::connecting && answer_; }
    void client_moved(); // bytes arrived that nobody waits for, or the client closed its side

private:
    enum class Phase { connecting, relaying, tunnel, finishing };

    // exchange.cpp
    Next serve(Yield& yield);
    bool connect(Yield& yield);
    bool begin_tls(const Forwarding& how, Yield& yield);
    Next not_connected(Yield& yield);
    Next sent_directly(Yield& yield);
    Next answer(const Problem& problem, Yield& yield);
    Next broken(Problem what, Yield& yield);
    Problem timeout_problem() const;
    void finish(Next& next, Yield& yield);
    void abandon_answer(Yield& yield);
    bool send_client(std::string_view bytes, Yield& yield);
    bool send_program(std::string_view bytes, Yield& yield);
    bool write_all(Stream& to, std::string_view bytes, Yield& yield);
    bool fill_from_program(Yield& yield);
    void progress() { connection_.deadline().set_in(patience_); }
    bool body_too_large() const;
    // upload.cpp
    bool compose_opening();
    void send_request(Yield& yield);
    void begin_upload();
    void upload(Yield& yield);
    bool upload_some(Yield& yield);
    bool too_much_to_discard(std::size_t bytes);
    void refuse_body(const Fault& fault);
    void upload_ended();
    Next tunnel(Yield& yield);
    void tunnel_up(Yield& yield);
    // relay.cpp
    Next relay(Yield& yield);
    bool read_reply_head(Yield& yield);
    bool relay_interim(Yield& yield);
    ClientConnection choose_connection(bool close_delimited) const;
    Next relay_body(bool chunk, bool unpack, Yield& yield);
    bool send_part(std::size_t bytes, bool chunk, bool unpack, Yield& yield);

    Connection& connection_;
    const RequestHead& head_;
    const Options& options_;
    std::string request_id_, traceparent_;
    std::optional<Trace> trace_;
    Phase phase_ = Phase::connecting;
    Abort abort_ = Abort::none;
    std::chrono::milliseconds patience_;

    std::shared_ptr<Answer> answer_;
    std::unique_ptr<Lease> lease_; // null if the upstream has none
    Stream program_;
    Buffer program_in_;
    bool has_program_ = false, program_ended_clean_ = false;

    Body body_; // of the request
    Problem body_problem_;
    Event upload_event_;
    std::size_t discarded_ = 0;
    bool uploading_ = false, stop_upload_ = false, discard_ = false, reply_done_ = false;
    bool waits_for_client_ = false, writes_to_client_ = false;

    std::string reply_bytes_; // owns what reply_ points into
    ReplyHead reply_;
    Body reply_body_;
    std::string out_;
    std::string payload_;
    unsigned interims_ = 0;
    bool continued_ = false; // a 100 was relayed
    bool reply_begun_ = false;
    Problem reply_problem_;

    Outcome outcome_ = Outcome::ok;
    unsigned status_ = 0;
    std::uint64_t bytes_in_, bytes_out_ = 0;
    Clock::time_point asked_, connected_;
    std::optional<Clock::time_point> ended_; // when the client had its reply, if that was before we noticed
};

} // namespace kvmserver::http
