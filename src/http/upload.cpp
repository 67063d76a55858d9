// From the client to the program: request bodies, and all bytes after an upgrade.
#include "src/http/exchange.hpp"

#include "src/http/problem.hpp"
#include "src/http/worker.hpp"

namespace kvmserver::http {
namespace {
constexpr std::size_t kWithHead = 16 * 1024; // of the body, sent in one write with the head
// Most bytes to discard of a body that the program did not want, to keep the connection.
constexpr std::size_t kDiscarded = 64 * 1024;
} // namespace

bool Exchange::body_too_large() const { return options_.max_body && body_.payload_bytes() > options_.max_body; }

void Exchange::refuse_body(const Fault& fault) { body_problem_ = problem_of(fault, Outcome::refused); }

// Puts the head and what has arrived of the body into out_. Returns false if the body is refused.
bool Exchange::compose_opening() {
    RequestExtras extras{.traceparent = traceparent_,
                         .without_tracestate = trace_ && trace_->parent_refused,
                         .forwarded_for = {},
                         .forwarded_proto = {}};
    if (options_.forwarded_headers) {
        extras.forwarded_for = connection_.client_ip();
        extras.forwarded_proto = connection_.client().secure() ? "https" : "http";
    }
    append_request(out_, head_, extras);
    const std::string_view available = connection_.in().view().substr(0, kWithHead);
    const std::size_t bytes = body_.done() ? 0 : body_.feed(available);
    if (body_.fault() || body_too_large()) {
        refuse_body(body_.fault() ? body_.fault()
                                  : Fault{413, "body-too-large", "The body of the request is too large."});
        abort(Abort::refused);
        return false;
    }
    out_.append(available.substr(0, bytes));
    connection_.in().consume(bytes);
    bytes_in_ += bytes;
    return true;
}

// A program that does not read everything may still have a reply.
void Exchange::send_request(Yield& yield) {
    if (answer_->forwarding)
        out_.insert(out_.find("\r\n") + 2, answer_->forwarding->lines); // behind the request line
    discard_ = answer_->reply || (!answer_->opening_delivered && !send_program(out_, yield));
    out_.clear();
    if (!body_.done())
        begin_upload();
}

void Exchange::begin_upload() {
    uploading_ = true;
    connection_.watch_break(); // read nothing while the program takes nothing
    connection_.worker().spawn([this, alive = connection_.shared_from_this()](Yield yield) { upload(yield); });
}

void Exchange::upload(Yield& yield) {
    while (!body_.done() && !stop_upload_ && upload_some(yield)) {
    }
    upload_ended();
}

void Exchange::upload_ended() {
    uploading_ = false;
    if (phase_ == Phase::relaying)
        connection_.watch(); // now only to notice if the client goes
    upload_event_.notify();
}

bool Exchange::upload_some(Yield& yield) {
    Buffer& in = connection_.in();
    if (in.empty()) {
        waits_for_client_ = true;
        Pace* const pace = phase_ == Phase::relaying ? &connection_.receiving() : nullptr;
        if (pace)
            pace->wait_begins();
        const bool more = connection_.fill(yield);
        if (pace)
            pace->wait_ends(in.size());
        if (!more) {
            if (connection_.client_ended())
                abort(Abort::client_gone);
            return false; // waits_for_client_ stays set: the timeout was the client's
        }
        waits_for_client_ = false;
        if (phase_ == Phase::relaying)
            progress();
    }
    const std::size_t bytes = body_.feed(in.view());
    if (body_.fault() || body_too_large()) {
        refuse_body(body_.fault() ? body_.fault()
                                  : Fault{413, "body-too-large", "The body of the request is too large."});
        abort(Abort::refused);
        return false;
    }
    // Go on: a program that reads no more may still reply, and many clients read only after they have sent everything.
    if (!discard_)
        discard_ = !send_program(in.view().substr(0, bytes), yield);
    in.consume(bytes);
    bytes_in_ += bytes;
    return !(reply_done_ && too_much_to_discard(bytes));
}

bool Exchange::too_much_to_discard(std::size_t bytes) {
    discarded_ += bytes;
    return discarded_ > kDiscarded || (body_.kind() == BodyKind::length && body_.left() > kDiscarded);
}

// After a 101. Each direction ends on its own and its end is passed on. The exchange ends when both have.
Next Exchange::tunnel(Yield& yield) {
    phase_ = Phase::tunnel;
    reply_begun_ = true;
    status_ = 101;
    patience_ = options_.tunnel_timeout;
    append_interim(out_, reply_, answer_->more_lines);
    if (!send_client(out_, yield))
        return broken({}, yield);
    uploading_ = true;
    connection_.watch_break(); // read nothing while the program takes nothing
    connection_.worker().spawn([this, alive = connection_.shared_from_this()](Yield up) { tunnel_up(up); });
    while (!program_in_.empty() || fill_from_program(yield)) {
        if (!send_client(program_in_.view(), yield))
            break;
        program_in_.consume(program_in_.size());
    }
    if (abort_ != Abort::none)
        return broken({}, yield);
    if (!program_ended_clean_)
        return broken({}, yield);
    if (connection_.client().secure()) // TLS cannot end one direction only
        return Next::linger;
    connection_.client().finish_sending(yield);
    patience_ = options_.progress_timeout;
    progress();
    while (uploading_)
        upload_event_.wait(yield);
    return abort_ == Abort::none ? Next::linger : broken({}, yield);
}

void Exchange::tunnel_up(Yield& yield) {
    Buffer& in = connection_.in();
    for (;;) {
        if (stop_upload_)
            break;
        if (in.empty() && !connection_.fill(yield)) {
            if (!connection_.client_ended())
                break; // cancelled
            if (connection_.client_broke()) {
                abort(Abort::client_gone);
                break;
            }
            program_.finish_sending(yield);
            patience_ = options_.progress_timeout;
            break;
        }
        progress();
        const std::size_t bytes = in.size();
        if (!send_program(in.view(), yield))
            break; // the reading coroutine sees why
        in.consume(bytes);
        bytes_in_ += bytes;
    }
    upload_ended();
}

} // namespace kvmserver::http
