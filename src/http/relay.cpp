// From the program to the client: interim replies, the reply's head, and its body in a framing that the client knows.
#include "src/http/exchange.hpp"

#include <charconv>

#include "src/http/problem.hpp"
#include "src/http/worker.hpp"

namespace kvmserver::http {
namespace {
constexpr unsigned kMaxInterims = 32;
constexpr const char* kNoReply = "The program closed its connection before it replied.";
} // namespace

// Reads one head. Returns false, and sets reply_problem_, if there is none.
bool Exchange::read_reply_head(Yield& yield) {
    HeadEnd end;
    for (;;) {
        const HeadEnd::State state = end.feed(program_in_.view(), options_.limits.of_reply());
        if (state == HeadEnd::State::found)
            break;
        if (state == HeadEnd::State::bad) {
            reply_problem_ = {Outcome::bad_reply, 502, "bad-reply",
                              std::string("The program's reply is malformed: ") + end.fault().detail};
            return false;
        }
        if (!fill_from_program(yield)) {
            reply_problem_ = {Outcome::bad_reply, 502, "no-reply", kNoReply,
                              "The program may have crashed: see its log."};
            return false;
        }
    }
    reply_bytes_.assign(program_in_.view().substr(0, end.size()));
    program_in_.consume(end.size());
    const Fault fault = parse_reply_head(reply_bytes_, options_.limits,
                                         {.head_request = head_.method == "HEAD", .upgrade = head_.upgrade}, reply_);
    if (fault)
        reply_problem_ = problem_of(fault, Outcome::bad_reply);
    return !fault;
}

bool Exchange::relay_interim(Yield& yield) {
    if (++interims_ > kMaxInterims) {
        reply_problem_ = {Outcome::bad_reply, 502, "bad-reply", "The program sends interim replies without end."};
        return false;
    }
    if (head_.minor_version == 0)
        return true; // HTTP/1.0 has no interim replies
    continued_ = continued_ || reply_.status == 100;
    out_.clear();
    append_interim(out_, reply_);
    return send_client(out_, yield);
}

Next Exchange::relay(Yield& yield) {
    for (;;) {
        if (!read_reply_head(yield))
            return broken(reply_problem_, yield);
        if (!reply_.interim())
            break;
        out_.clear();
        if (reply_.status == 101)
            return tunnel(yield);
        if (!relay_interim(yield))
            return broken(reply_problem_, yield);
    }
    reply_body_ = Body(reply_.body);
    const bool chunk = reply_.body.kind == BodyKind::until_close && head_.minor_version > 0;
    const bool unpack = reply_.body.kind == BodyKind::chunked && head_.minor_version == 0;
    const bool close_delimited = unpack || (reply_.body.kind == BodyKind::until_close && !chunk);
    const ClientConnection connection = choose_connection(close_delimited);
    out_.clear();
    append_reply(out_, reply_, connection, {.chunked = chunk, .plain = unpack}, answer_->more_lines);
    reply_begun_ = true;
    status_ = reply_.status;
    const Next next = relay_body(chunk, unpack, yield);
    return next == Next::keep && connection == ClientConnection::close ? Next::linger : next;
}

ClientConnection Exchange::choose_connection(bool close_delimited) const {
    // A client that waits for 100 may or may not send its body now, so its next bytes are ambiguous.
    const bool body_uncertain = head_.expects_continue && !continued_ && !body_.done();
    if (!head_.keep_alive || close_delimited || body_uncertain || connection_.worker().draining())
        return ClientConnection::close;
    return head_.minor_version == 0 ? ClientConnection::keep_1_0 : ClientConnection::keep;
}

Next Exchange::relay_body(bool chunk, bool unpack, Yield& yield) {
    for (;;) {
        const std::size_t bytes = reply_body_.feed(program_in_.view(), unpack ? &payload_ : nullptr);
        if (reply_body_.fault()) {
            reply_begun_ = out_.empty(); // the head was not sent yet: the client can still get an error
            out_.clear();
            return broken({Outcome::bad_reply, 502, "bad-reply", reply_body_.fault().detail}, yield);
        }
        if (!send_part(bytes, chunk, unpack, yield))
            return broken({}, yield);
        if (reply_body_.done())
            return Next::keep;
        if (fill_from_program(yield))
            continue;
        // The connection's end is the body's end, unless the machine was stopped.
        if (reply_body_.kind() != BodyKind::until_close || !program_ended_clean_ || abort_ != Abort::none ||
            (lease_ && lease_->failure()))
            return broken({}, yield);
        return !chunk || send_client("0\r\n\r\n", yield) ? Next::keep : broken({}, yield);
    }
}

// Sends out_ (the head) and then `bytes` of the program's.
bool Exchange::send_part(std::size_t bytes, bool chunk, bool unpack, Yield& yield) {
    const std::string_view part = program_in_.view().substr(0, bytes);
    bool sent = true;
    if (unpack) {
        out_.append(payload_);
        payload_.clear();
    } else if (chunk && bytes) {
        char size[16];
        const auto end = std::to_chars(size, size + sizeof size, bytes, 16).ptr;
        out_.append(size, end).append("\r\n").append(part).append("\r\n");
    } else if (out_.empty()) {
        sent = part.empty() || send_client(part, yield); // unchanged, without a copy
    } else {
        out_.append(part);
    }
    if (!out_.empty()) {
        sent = send_client(out_, yield);
        out_.clear();
    }
    program_in_.consume(bytes);
    return sent;
}

} // namespace kvmserver::http
