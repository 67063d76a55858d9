#include "src/http/connection.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include "src/http/client_hello.hpp"
#include "src/http/exchange.hpp"
#include "src/http/problem.hpp"
#include "src/http/worker.hpp"

namespace kvmserver::http {
namespace {
constexpr std::size_t kReadAhead = 16 * 1024;     // of pipelined requests, during a request
constexpr std::size_t kLingerBytes = 1024 * 1024; // discarded from a client that is still sending
constexpr std::size_t kSlack = 4096;              // room beyond the longest head, to notice one that is too long
// How long a drain waits for the first request of a client that just connected: it saw its connection accepted.
constexpr std::chrono::milliseconds kFreshGrace{1000};
} // namespace

Connection::Connection(Worker& worker, std::string client_ip, TlsContext tls,
                       std::unique_ptr<ConnectionTable::Place> place)
    : worker_(worker), client_(worker.io()), tls_(std::move(tls)), client_ip_(std::move(client_ip)),
      in_(std::max<std::size_t>(64 * 1024, worker.options().limits.head_bytes + kSlack)), deadline_(worker.io()),
      sending_(worker.io(), worker.options().min_rate, worker.options().min_rate_window,
               [this] { return client_.unsent(); }),
      receiving_(worker.io(), worker.options().min_rate, worker.options().min_rate_window, {}), arrived_(worker.io()),
      place_(std::move(place)) {
    worker_.add(*this);
}

Connection::~Connection() { worker_.remove(*this); }

void Connection::start(tinykvm::UniqueFd socket) {
    client_.assign(std::move(socket));
    const auto self = shared_from_this();
    deadline_.begin(std::shared_ptr<Deadline::Owner>(self, this));
    for (Pace* const pace : {&sending_, &receiving_})
        pace->begin(self, [this] {
            if (exchange_)
                exchange_->abort(Exchange::Abort::too_slow);
        });
    if (place_)
        place_->on_give_way([connection = weak_from_this(), &io = worker_.io()] {
            asio::post(io, [connection] {
                if (const auto alive = connection.lock())
                    alive->give_way();
            });
        });
    worker_.spawn([self = shared_from_this()](Yield yield) { self->run(yield); });
}

void Connection::stop() {
    stopping_ = true;
    if (exchange_)
        exchange_->abort(Exchange::Abort::stopped);
    if (!exchange_ || !exchange_->waits_for_answer())
        client_.close();
    arrived_.notify();
}

// How long a drain waits for a request that may be on its way.
std::chrono::milliseconds Connection::drain_patience() const {
    return std::max<std::chrono::milliseconds>(worker_.options().drain_grace,
                                               fresh_ ? kFreshGrace : std::chrono::milliseconds(0));
}

void Connection::close_if_idle() {
    if (!idle_ || client_.has_input()) // bytes that have arrived are still answered
        return;
    if (const auto patience = drain_patience(); patience.count() > 0)
        return deadline_.set_in(patience);
    stopping_ = true;
    client_.cancel();
}

// An incomplete head is not a request yet.
void Connection::give_way() {
    if (exchange_)
        return place_->stay();
    worker_.refused(Refusal::gave_way);
    stopping_ = true;
    client_.cancel();
}

void Connection::run(Yield& yield) {
    deadline_.set_in(worker_.options().header_timeout);
    if (tls_ && worker_.passthrough().any && worker_.passthrough().any() && passed_on(yield))
        return;
    const auto handshake = interrupted() ? Stream::Handshake::failed
                           : tls_        ? client_.start_tls(tls_, yield)
                                         : Stream::Handshake::done;
    if (handshake == Stream::Handshake::done)
        serve(yield);
    else if (handshake == Stream::Handshake::plain_http)
        refuse_plain(yield);
    deadline_.end();
    sending_.end();
    receiving_.end();
    client_.close();
}

// Whether a program that holds the key itself got the connection.
bool Connection::passed_on(Yield& yield) {
    std::vector<char> room(kMaxHello);
    std::optional<std::string> host;
    for (std::size_t seen = 0; !(host = server_name_of({room.data(), seen}));) {
        error_code error;
        client_.wait_input(static_cast<int>(seen + 1), error, yield);
        const std::size_t before = std::exchange(seen, error || interrupted() ? 0 : client_.peek(room));
        if (seen <= before) // it has closed its side, or its time is over
            return false;
    }
    if (host->empty() || !worker_.passthrough().has(*host))
        return false;
    deadline_.end();
    sending_.end();
    receiving_.end();
    worker_.passthrough().take({client_.release(), std::move(*host), client_ip_, std::move(place_)});
    return true;
}

// OpenSSL has taken the beginning of the request, so its head is not known.
void Connection::refuse_plain(Yield& yield) {
    static constexpr Fault kPlain{400, "tls-required", "This port speaks TLS: the URL begins with https://."};
    if (refuse(kPlain, yield) == Next::linger)
        linger(yield);
}

void Connection::serve(Yield& yield) {
    Next next = Next::keep;
    while (next == Next::keep && next_head(yield)) {
        const Fault fault = parse_request_head(head_bytes_, worker_.options().limits, head_);
        if (fault) {
            head_.method = head_.path = head_.host = {}; // may be incomplete
            next = refuse(fault, yield);
            break;
        }
        sending_.reset();
        receiving_.reset();
        if (place_)
            place_->busy();
        Exchange exchange(*this, head_, head_bytes_.size());
        exchange_ = &exchange;
        next = exchange.run(yield);
        exchange_ = nullptr;
        if (place_)
            place_->idle();
    }
    if (next == Next::linger)
        linger(yield);
    else if (next == Next::cut)
        client_.close_hard();
    else if (client_.secure() && !stopping_ && client_.open()) {
        deadline_.set_in(worker_.options().linger);
        client_.finish_sending(yield);
    }
}

// Waits between requests. Skips one empty line, which old clients send after a body (RFC 9112 section 2.2).
bool Connection::wait_first_byte(Yield& yield) {
    bool skipped = false;
    for (;;) {
        if (!skipped && in_.view().starts_with("\r\n")) {
            in_.consume(2);
            skipped = true;
        }
        if (!in_.empty() && (skipped || in_.view() != "\r"))
            return true;
        if (worker_.draining() && in_.empty() && !client_.has_input()) {
            // A read in progress may already have taken bytes from the socket: let it complete.
            const auto patience = std::max(drain_patience(), std::chrono::milliseconds(reading_ ? 1 : 0));
            if (patience.count() == 0)
                return false;
            deadline_.set_in(patience);
        }
        idle_ = in_.empty();
        const bool more = fill(yield);
        idle_ = false;
        if (!more)
            return false;
    }
}

bool Connection::next_head(Yield& yield) {
    const Options& options = worker_.options();
    deadline_.set_in(options.idle_timeout);
    if (!wait_first_byte(yield)) {
        if (fresh_ && expired_)
            worker_.refused(Refusal::silent);
        return false;
    }
    began_ = Clock::now();
    deadline_.set_in(options.header_timeout);
    HeadEnd end;
    for (;;) {
        const HeadEnd::State state = end.feed(in_.view(), options.limits);
        if (state == HeadEnd::State::found)
            break;
        Fault fault = end.fault();
        if (state == HeadEnd::State::more) {
            if (fill(yield))
                continue;
            if (!expired_ || stopping_)
                return false; // gone before the head was complete: no reply
            fault = {408, "header-timeout", "The head of the request did not arrive in time."};
        }
        head_ = {};
        head_bytes_.clear();
        if (refuse(fault, yield) == Next::linger)
            linger(yield);
        return false;
    }
    head_bytes_.assign(in_.view().substr(0, end.size()));
    in_.consume(end.size());
    fresh_ = false;
    return true;
}

Next Connection::refuse(const Fault& fault, Yield& yield) {
    Exchange exchange(*this, head_, head_bytes_.empty() ? in_.size() : head_bytes_.size());
    expired_ = false;
    exchange_ = &exchange;
    const Next next = exchange.refuse(fault, yield);
    exchange_ = nullptr;
    return next;
}

// Reads what the client still sends before closing. Closing with unread bytes resets the connection, and the client
// might never see the reply.
void Connection::linger(Yield& yield) {
    expired_ = false;
    deadline_.set_in(worker_.options().linger);
    client_.cancel();
    while (reading_)
        arrived_.wait(yield);
    client_.finish_sending(yield);
    std::array<char, 4096> scratch;
    error_code error;
    for (std::size_t thrown = 0; thrown < kLingerBytes && !error && !interrupted() && !ended_;)
        thrown += client_.read_some(scratch, error, yield);
}

bool Connection::fill(Yield& yield) {
    const std::size_t before = in_.size();
    if (ended_ || interrupted())
        return false;
    if (reading_) {
        while (reading_ && in_.size() == before && !ended_)
            arrived_.wait(yield);
        return in_.size() > before;
    }
    const std::span<char> room = in_.room();
    if (room.empty())
        return false;
    reading_ = true;
    error_code error;
    const std::size_t bytes = client_.read_some(room, error, yield);
    reading_ = false;
    in_.added(bytes);
    note_end(error);
    arrived_.notify(); // linger() may be waiting
    return bytes > 0;
}

void Connection::watch() {
    if (in_.size() >= kReadAhead)
        return watch_break();
    if (ended_ || reading_)
        return;
    reading_ = true;
    client_.start_read(in_.room(), std::shared_ptr<ReadSink>(shared_from_this(), this));
}

void Connection::watch_break() {
    if (ended_ || watching_)
        return;
    watching_ = true;
    client_.start_watch(std::shared_ptr<ReadSink>(shared_from_this(), this));
}

void Connection::read_done(error_code error, std::size_t bytes) {
    reading_ = false;
    in_.added(bytes);
    note_end(error);
    arrived_.notify();
    if (exchange_ && error != asio::error::operation_aborted)
        exchange_->client_moved();
}

void Connection::watch_done(error_code error) {
    watching_ = false;
    if (error || !client_.broke()) // no error: both sides have ended, which the reader sees
        return;
    note_end(asio::error::connection_reset);
    if (exchange_)
        exchange_->client_moved();
}

void Connection::note_end(error_code error) {
    if (!error || error == asio::error::operation_aborted)
        return;
    ended_ = true;
    clean_end_ = error == asio::error::eof;
}

void Connection::deadline_passed() {
    if (exchange_) {
        exchange_->expire();
        return;
    }
    expired_ = true;
    client_.cancel();
}

} // namespace kvmserver::http
