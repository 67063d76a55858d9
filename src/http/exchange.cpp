#include "src/http/exchange.hpp"

#include <exception>

#include <boost/asio/error.hpp>

#include "src/http/problem.hpp"
#include "src/http/worker.hpp"

namespace kvmserver::http {
namespace {

constexpr std::size_t kProgramBuffer = 64 * 1024;

std::uint64_t microseconds(Clock::duration time) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

} // namespace

Exchange::Exchange(Connection& connection, const RequestHead& head, std::size_t head_bytes)
    : connection_(connection), head_(head), options_(connection.worker().options()),
      request_id_(connection.worker().ids().request_id()), patience_(options_.progress_timeout),
      program_(connection.worker().io()), program_in_(kProgramBuffer), body_(head.body),
      upload_event_(connection.worker().io()), bytes_in_(head_bytes), asked_(Clock::now()), connected_(asked_) {
    connection_.worker().began();
}

Exchange::~Exchange() {
    if (const std::uint64_t began = lease_ ? lease_->began_ns() : 0; began != 0) {
        connected_ = Clock::time_point(std::chrono::nanoseconds(began));
        has_program_ = true;
    }
    RequestRecord record;
    record.request_id = request_id_;
    record.traceparent = traceparent_.empty() ? head_.traceparent : std::string_view(traceparent_);
    record.client_ip = connection_.client_ip();
    record.method = head_.method;
    record.host = head_.host;
    record.path = head_.path;
    record.status = status_;
    record.outcome = outcome_;
    record.bytes_in = bytes_in_;
    record.bytes_out = bytes_out_;
    record.queue_us = microseconds(connected_ - asked_);
    record.ended = ended_.value_or(Clock::now());
    record.exec_us = has_program_ ? microseconds(record.ended - connected_) : 0;
    record.total_us = microseconds(record.ended - connection_.request_began());
    record.head_us = microseconds(asked_ - connection_.request_began());
    record.lease = lease_.get();
    if (trace_) {
        record.trace = &*trace_;
        record.head = &head_;
        record.secure = connection_.client().secure();
    }
    connection_.worker().finished(record);
}

Next Exchange::run(Yield& yield) {
    Next next = Next::cut;
    try {
        next = serve(yield);
    } catch (const std::exception& error) { // from the Upstream, or out of memory: the other coroutine must end first
        outcome_ = Outcome::internal;
        abandon_answer(yield); // otherwise another thread might still write to the client
        next = reply_begun_ || (answer_ && answer_->sent)
                   ? Next::cut
                   : answer(problem_for(Outcome::internal, {.reason = error.what()}), yield);
    }
    finish(next, yield);
    return next;
}

Next Exchange::refuse(const Fault& fault, Yield& yield) {
    return answer(problem_of(fault, fault.status == 408 ? Outcome::client_timeout : Outcome::refused), yield);
}

Next Exchange::serve(Yield& yield) {
    if (options_.trace_share) {
        trace_ = join_trace(head_, *options_.trace_share, connection_.worker().ids());
        traceparent_ = trace_->traceparent();
    }
    if (options_.max_body && head_.body.length > options_.max_body) {
        refuse_body({413, "body-too-large", "The body of the request is too large."});
        return answer(body_problem_, yield);
    }
    if (!compose_opening())
        return broken({}, yield);
    const bool connected = connect(yield);
    if (answer_->sent)
        return sent_directly(yield);
    if (!connected)
        return not_connected(yield);
    send_request(yield);
    return relay(yield);
}

bool Exchange::connect(Yield& yield) {
    Worker& worker = connection_.worker();
    answer_ = std::make_shared<Answer>(worker.io());
    if (body_.done() && !connection_.client().secure())
        answer_->direct = DirectReply::allowed(connection_.client().socket(), head_, options_, worker.draining_flag());
    // Another request, or the end of the connection, would wait.
    answer_->may_be_unannounced = answer_->direct && connection_.in().empty() && !connection_.client_ended();
    connection_.deadline().set_in(options_.connect_timeout);
    lease_ = worker.upstream().connect({.head = head_,
                                        .request_id = request_id_,
                                        .traceparent = traceparent_.empty() ? head_.traceparent : traceparent_,
                                        .traced = trace_ && trace_->sampled,
                                        .client_ip = connection_.client_ip(),
                                        .secure = connection_.client().secure(),
                                        .opening = out_,
                                        .more_follows = !body_.done() || head_.upgrade},
                                       answer_);
    connection_.watch(); // after connect(), so that the machine is already at work
    if (answer_->may_be_unannounced)
        worker.late_look().add(answer_);
    const bool answered = answer_->wait(yield);
    connected_ = answer_->sent ? answer_->direct->when() : Clock::now();
    if (!answered || abort_ != Abort::none || answer_->problem)
        return false;
    has_program_ = true;
    phase_ = Phase::relaying;
    if (answer_->sent)
        return true;
    if (answer_->reply) {
        program_in_.append(*answer_->reply);
        program_ended_clean_ = answer_->closing == Closing::clean;
    } else {
        program_.assign(std::move(answer_->socket));
        if (answer_->forwarding && answer_->forwarding->tls && !begin_tls(*answer_->forwarding, yield))
            return false;
    }
    progress();
    return true;
}

// With the other server. Sets the answer's problem.
bool Exchange::begin_tls(const Forwarding& how, Yield& yield) {
    constexpr std::chrono::seconds kPatience{10};
    std::string_view host = head_.host;
    if (const std::size_t port = host.rfind(':'); port != host.npos && host.find(']', port) == host.npos)
        host = host.substr(0, port);
    connection_.deadline().set_in(kPatience);
    std::string why;
    if (program_.start_tls_as_client(how.tls, host.empty() ? how.host : std::string(host), why, yield))
        return true;
    answer_->problem = how.no_tls(abort_ == Abort::timed_out ? "no TLS within 10 s" : why);
    return false;
}

Next Exchange::not_connected(Yield& yield) {
    if (abort_ != Abort::none && abort_ != Abort::timed_out)
        return broken({}, yield);
    if (answer_->problem)
        return answer(*answer_->problem, yield);
    return answer(problem_for(Outcome::queue_timeout), yield);
}

// A direct reply: the client has all of it or its beginning.
Next Exchange::sent_directly(Yield& yield) {
    phase_ = Phase::relaying;
    has_program_ = reply_begun_ = true;
    status_ = answer_->direct->status();
    bytes_out_ += answer_->direct->sent();
    progress();
    const std::string_view rest = answer_->direct->rest();
    const Next next = answer_->direct->closes() ? Next::linger : Next::keep;
    if (rest.empty()) {
        ended_ = answer_->direct->when();
        return next;
    }
    return abort_ == Abort::none && send_client(rest, yield) ? next : broken({}, yield);
}

// Sends our own reply. The connection stays open only if no byte of the request can be mistaken for the next one.
Next Exchange::answer(const Problem& problem, Yield& yield) {
    phase_ = Phase::finishing;
    outcome_ = problem.outcome;
    status_ = problem.status;
    const bool client_is_sound =
        outcome_ != Outcome::refused && abort_ != Abort::timed_out && abort_ != Abort::too_slow;
    if (client_is_sound && !uploading_ && !body_.done()) {
        const std::size_t bytes = body_.feed(connection_.in().view());
        connection_.in().consume(bytes);
        bytes_in_ += bytes;
    }
    const bool keep =
        client_is_sound && head_.keep_alive && body_.done() && !body_.fault() && !connection_.worker().draining();
    connection_.deadline().set_in(options_.linger);
    send_client(problem_reply(problem, request_id_, !keep || head_.minor_version == 0, head_.method == "HEAD"), yield);
    return keep && head_.minor_version > 0 ? Next::keep : Next::linger;
}

Problem Exchange::timeout_problem() const {
    return problem_for(waits_for_client_ ? Outcome::client_timeout : Outcome::program_silent);
}

// Ends an exchange that cannot continue. `what` is the reason, unless it was aborted for another.
Next Exchange::broken(Problem what, Yield& yield) {
    switch (abort_) {
    case Abort::client_gone: outcome_ = Outcome::client_gone; return Next::cut;
    case Abort::stopped: outcome_ = Outcome::stopped; return Next::cut;
    case Abort::refused: what = body_problem_; break;
    case Abort::timed_out: what = timeout_problem(); break;
    case Abort::too_slow: what = problem_for(Outcome::client_slow, {.min_rate = options_.min_rate}); break;
    case Abort::none:
        if (lease_)
            if (std::optional<Problem> failure = lease_->failure())
                what = std::move(*failure);
        if (what.code.empty())
            what = problem_for(Outcome::bad_reply);
        if (const std::string look = lease_ && what.outcome == Outcome::bad_reply ? lease_->where_to_look() : "";
            !look.empty())
            what.hint = "what the program printed: `" + look + "`";
    }
    outcome_ = what.outcome;
    program_.close();
    return reply_begun_ ? Next::cut : answer(what, yield);
}

// For when connect() threw, so that nothing has waited for the answer.
void Exchange::abandon_answer(Yield& yield) {
    if (!answer_)
        return;
    answer_->interrupt();
    answer_->wait(yield);
}

void Exchange::finish(Next& next, Yield& yield) {
    phase_ = Phase::finishing;
    program_.close();
    if (uploading_) {
        // Discard the rest of a body that the program did not want, to find the next request.
        reply_done_ = true;
        connection_.deadline().set_in(options_.linger);
        if (next != Next::keep) {
            stop_upload_ = true;
            connection_.client().cancel();
        }
        while (uploading_)
            upload_event_.wait(yield);
    }
    if (next == Next::keep && !body_.done())
        next = Next::linger;
}

void Exchange::abort(Abort why) {
    if (abort_ != Abort::none)
        return;
    abort_ = why;
    if (answer_)
        answer_->interrupt();
    program_.close();
    if (why == Abort::client_gone || why == Abort::stopped || writes_to_client_)
        connection_.client().cancel();
}

void Exchange::expire() {
    if (phase_ == Phase::finishing) {
        stop_upload_ = true;
        connection_.client().cancel();
    } else {
        abort(Abort::timed_out);
    }
}

void Exchange::client_moved() {
    if (phase_ == Phase::finishing || (waits_for_answer() && answer_->look()))
        return;
    if (connection_.client_broke())
        abort(Abort::client_gone);
    else if (uploading_)
        return; // the upload sees it
    else if (!connection_.client_ended())
        connection_.watch();
    else if (!options_.half_close_is_alive)
        abort(Abort::client_gone);
}

bool Exchange::write_all(Stream& to, std::string_view bytes, Yield& yield) {
    error_code error;
    Pace* const pace = &to == &connection_.client() && phase_ == Phase::relaying ? &connection_.sending() : nullptr;
    while (!bytes.empty() && !error) {
        if (pace)
            pace->wait_begins();
        const std::size_t written = to.write_some(bytes, error, yield);
        if (pace)
            pace->wait_ends(written);
        bytes.remove_prefix(written);
        if (phase_ != Phase::finishing)
            progress();
    }
    return !error;
}

bool Exchange::send_client(std::string_view bytes, Yield& yield) {
    writes_to_client_ = true;
    const bool sent = write_all(connection_.client(), bytes, yield);
    writes_to_client_ = false;
    if (!sent)
        abort(Abort::client_gone);
    else
        bytes_out_ += bytes.size();
    return sent;
}

bool Exchange::send_program(std::string_view bytes, Yield& yield) { return write_all(program_, bytes, yield); }

bool Exchange::fill_from_program(Yield& yield) {
    error_code error;
    if (!program_.open()) // everything is here, or nothing more is wanted
        return false;
    const std::span<char> room = program_in_.room();
    if (room.empty() || abort_ != Abort::none)
        return false;
    const std::size_t bytes = program_.read_some(room, error, yield);
    program_in_.added(bytes);
    program_ended_clean_ = error == asio::error::eof;
    if (bytes)
        progress();
    return bytes > 0 && abort_ == Abort::none;
}

std::string_view to_string(Refusal refusal) {
    switch (refusal) {
    case Refusal::too_many_connections: return "too-many-connections";
    case Refusal::too_many_of_client: return "too-many-of-client";
    case Refusal::gave_way: return "gave-way";
    case Refusal::silent: return "silent";
    }
    return "?";
}

} // namespace kvmserver::http
