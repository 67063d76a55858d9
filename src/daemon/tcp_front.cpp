#include "src/daemon/tcp_front.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "src/common/clock.hpp"
#include "src/daemon/tcp_connection.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using request::Outcome;
using tinykvm::UniqueFd;

namespace {

constexpr std::size_t kRoom = 64 << 10;
constexpr std::int64_t kLongestWaitMs = 60'000;
constexpr int kAcceptedAtOnce = 64; // so that a flood of clients does not keep the others waiting

bool has_bytes(int socket) {
    char byte;
    return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

std::uint64_t us_between(std::uint64_t begin_ns, std::uint64_t end_ns) {
    return end_ns > begin_ns ? (end_ns - begin_ns) / 1000 : 0;
}

} // namespace

// The pool's answer, on any thread.
class TcpFront::Answer final : public http::RequestWaiter {
public:
    Answer(std::shared_ptr<Inbox> inbox, Id id) : inbox_(std::move(inbox)), id_(id) {}
    void connected(UniqueFd socket) override { inbox_->add({id_, std::move(socket)}); }
    void failed(request::Problem problem) override { inbox_->add({id_, std::move(problem)}); }
    bool abandoned() const override { return false; }
    // The pool gives neither to a stream.
    void connected_for_rest(UniqueFd socket) override { connected(std::move(socket)); }
    void replied(std::string, http::Closing, http::Sender) override { failed(problem_for(Outcome::worker_died)); }

private:
    const std::shared_ptr<Inbox> inbox_;
    const Id id_;
};

void TcpFront::Inbox::add(News one) {
    {
        const std::lock_guard lock(mutex);
        if (closed)
            return;
        const bool near = std::holds_alternative<NearClient>(one.what);
        near_count += near;
        if (near || std::holds_alternative<http::PassedClient>(one.what))
            ++open_count;
        news.push_back(std::move(one));
    }
    wake();
}

void TcpFront::Inbox::wake() const {
    const std::uint64_t one = 1;
    (void)!::write(event.get(), &one, sizeof one);
}

TcpFront::TcpFront(TcpSockets& sockets, WorkerPool& pool, http::ConnectionTable& places, Lookup lookup, Told told)
    : sockets_(sockets), pool_(pool), places_(places), lookup_(std::move(lookup)), told_(std::move(told)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)), inbox_(std::make_shared<Inbox>()), room_(kRoom) {
    inbox_->event = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!epoll_ || !inbox_->event)
        tinykvm::throw_errno("epoll");
    Watched inbox;
    watch_one(inbox_->event.get(), 0, EPOLLIN, inbox);
}

TcpFront::~TcpFront() {
    stop_ = true;
    inbox_->wake();
    if (thread_.joinable())
        thread_.join();
    std::vector<News> left; // closed without the lock: a place has its own
    const std::lock_guard lock(inbox_->mutex);
    inbox_->closed = true;
    left.swap(inbox_->news);
}

std::function<void(http::PassedClient)> TcpFront::adopter() const {
    return [inbox = inbox_](http::PassedClient client) { inbox->add({0, std::move(client)}); };
}

void TcpFront::start() {
    thread_ = std::thread([this] { run(); });
}

void TcpFront::look() {
    look_ = true;
    inbox_->wake();
}

void TcpFront::drain() {
    draining_ = true; // before they are closed: the loop then takes who is in their queues
    sockets_.close_all();
    look();
}

bool TcpFront::wait_drained(std::chrono::milliseconds patience) {
    std::unique_lock lock(drained_mutex_);
    return drained_.wait_for(lock, patience, [this] { return closed_listeners_ && inbox_->open_count == 0; });
}

void TcpFront::run() {
    while (!stop_) {
        epoll_event events[64];
        const int n = ::epoll_wait(epoll_.get(), events, 64, timeout_ms());
        if (n < 0 && errno != EINTR)
            tinykvm::throw_errno("epoll_wait");
        for (int i = 0; i < n; ++i) {
            const Id token = events[i].data.u64; // a copy: the structure is packed
            handle(token, events[i].events);
        }
        if (look_.exchange(false))
            take_sockets();
        look_at_times();
    }
    listeners_.clear();
    while (!connections_.empty())
        end(*connections_.begin()->second, Outcome::stopped, true);
}

void TcpFront::handle(Id token, std::uint32_t events) {
    if (token == 0)
        return take_news();
    const Id id = token / 2;
    if (const auto listener = listener_ids_.find(id); listener != listener_ids_.end())
        return accept(ListenAddress(listener->second), kAcceptedAtOnce);
    const auto found = connections_.find(id); // it may be over since the events were collected
    if (found == connections_.end())
        return;
    Connection& connection = *found->second;
    const bool machine = token % 2 != 0;
    if (connection.state == Connection::State::relayed) {
        (machine ? connection.machine : connection.client).hung_up |= (events & EPOLLHUP) != 0;
        if (!machine && (events & EPOLLERR))
            return end(connection, Outcome::client_gone, true);
        return move(connection);
    }
    if (events & (EPOLLERR | EPOLLHUP))
        return end(connection, Outcome::client_gone, false);
    if (connection.state == Connection::State::silent)
        submit(connection);
}

void TcpFront::take_news() {
    std::uint64_t woken;
    (void)!::read(inbox_->event.get(), &woken, sizeof woken);
    std::vector<News> all;
    {
        const std::lock_guard lock(inbox_->mutex);
        all.swap(inbox_->news);
    }
    for (News& news : all) {
        if (auto* client = std::get_if<http::PassedClient>(&news.what)) {
            take(std::move(*client));
            continue;
        }
        if (auto* client = std::get_if<NearClient>(&news.what)) {
            take(std::move(*client));
            continue;
        }
        const auto found = connections_.find(news.id);
        if (found == connections_.end())
            continue;
        Connection& connection = *found->second;
        if (auto* machine = std::get_if<UniqueFd>(&news.what)) {
            connected(connection, std::move(*machine));
        } else if (auto* problem = std::get_if<request::Problem>(&news.what)) {
            end(connection, problem->outcome, true);
        } else if (connection.state == Connection::State::silent) { // it is to make room for others
            told_.refused(std::get<http::Refusal>(news.what));
            connections_.erase(found);
            one_less(false);
        } else {
            connection.place->stay(); // it has one: that asked it to give way
        }
    }
}

void TcpFront::close_at(Connection& connection, Clock::time_point when) {
    connection.until = when;
    next_look_ = std::min(next_look_, when);
}

int TcpFront::timeout_ms() const {
    if (next_look_ == Clock::time_point::max())
        return -1;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next_look_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, kLongestWaitMs));
}

void TcpFront::look_at_times() {
    const auto now = Clock::now();
    if (now < next_look_)
        return;
    next_look_ = Clock::time_point::max();
    std::vector<Connection*> over;
    for (const auto& [id, connection] : connections_) {
        if (!connection->until)
            continue;
        if (now >= *connection->until)
            over.push_back(connection.get());
        else
            next_look_ = std::min(next_look_, *connection->until);
    }
    for (Connection* each : over) {
        if (each->state != Connection::State::silent)
            end(*each, Outcome::stopped, true);
        else if (has_bytes(each->relay.client())) // its event is still to come
            submit(*each);
        else
            end(*each, draining_ ? Outcome::stopped : Outcome::client_timeout, false);
    }
}

void TcpFront::one_less(bool near) {
    inbox_->near_count -= near;
    if (--inbox_->open_count == 0 && draining_) {
        const std::lock_guard lock(drained_mutex_);
        drained_.notify_all();
    }
}

// Asks the pool for a machine.
void TcpFront::submit(Connection& connection) {
    if (connection.near.empty() && lookup_.away_too_long())
        return end(connection, Outcome::cluster_away, true);
    if (connection.place)
        connection.place->busy();
    connection.asked_ns = now_ns();
    connection.until.reset();
    if (connection.state == Connection::State::silent && connection.client.events != 0) {
        if (!has_bytes(connection.relay.client()))
            return end(connection, Outcome::client_gone, false); // without a byte: no machine is needed
        // What is live may have changed since it was accepted.
        if (const auto now = destination_of(connection))
            if (auto version = version_by_share(*now))
                connection.version = std::move(version);
    }
    connection.state = Connection::State::queued;
    watch_one(connection.relay.client(), token_of(connection.id, false), EPOLLERR, connection.client);
    connection.answer = std::make_shared<Answer>(inbox_, connection.id);
    connection.lease =
        pool_.submit(connection.version,
                     {.request_id = connection.request_id,
                      .client_ip = connection.client_ip,
                      .stream = true,
                      .client_port = connection.client_port,
                      .listen_port = connection.near.empty() ? connection.address.port : connection.listener,
                      .at_listener = !connection.near.empty()},
                     connection.answer);
}

void TcpFront::connected(Connection& connection, UniqueFd machine) {
    connection.answer.reset();
    connection.state = Connection::State::relayed;
    connection.connected_ns = now_ns();
    connection.relay.take_machine(std::move(machine));
    move(connection);
}

void TcpFront::move(Connection& connection) {
    switch (connection.relay.move(room_)) {
    case TcpRelay::State::open: return watch(connection);
    case TcpRelay::State::client_gone: return end(connection, Outcome::client_gone, true);
    case TcpRelay::State::machine_closed:
    case TcpRelay::State::both_ended: break;
    }
    const auto problem = connection.lease->failure();
    end(connection, problem ? problem->outcome : Outcome::ok, problem.has_value());
}

// A socket that hung up would be reported again and again while nothing can be done about it.
void TcpFront::watch(Connection& connection) {
    const auto one = [&](int fd, bool machine, std::uint32_t events, Watched& watched) {
        watch_one(fd, token_of(connection.id, machine), events | (watched.hung_up ? 0u : EPOLLERR), watched);
    };
    one(connection.relay.client(), false, connection.relay.client_events(), connection.client);
    one(connection.relay.machine(), true, connection.relay.machine_events(), connection.machine);
}

void TcpFront::watch_one(int fd, Id token, std::uint32_t events, Watched& watched) {
    if (events == watched.events)
        return;
    epoll_event event{};
    event.events = events;
    event.data.u64 = token;
    const int what = watched.events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    if (::epoll_ctl(epoll_.get(), what, fd, &event) < 0)
        tinykvm::throw_errno("epoll_ctl");
    watched.events = events;
}

void TcpFront::end(Connection& connection, Outcome outcome, bool reset) {
    if (!connection.near.empty()) // its process may hold the socket too: epoll would go on reporting it
        watch_one(connection.relay.client(), token_of(connection.id, false), 0, connection.client);
    connection.relay.close(reset);
    if (connection.answer && connection.answer->on_abandon)
        connection.answer->on_abandon();
    TcpRecord record;
    record.version = connection.version;
    if (connection.lease)
        record.request = connection.lease->request();
    record.function = std::move(connection.function);
    record.request_id = std::move(connection.request_id);
    record.client_ip = std::move(connection.client_ip);
    record.address = !connection.near.empty()   ? "storage of " + connection.near
                     : !connection.host.empty() ? connection.host
                                                : connection.address.text();
    record.passed_tls = !connection.host.empty();
    record.outcome = outcome;
    record.bytes_in = connection.relay.bytes_in();
    record.bytes_out = connection.relay.bytes_out();
    const std::uint64_t now = now_ns(), began = connection.connected_ns != 0 ? connection.connected_ns : now;
    record.queue_us = connection.asked_ns != 0 ? us_between(connection.asked_ns, began) : 0;
    record.exec_us = us_between(began, now);
    record.total_us = us_between(connection.accepted_ns, now);
    const bool near = !connection.near.empty();
    connections_.erase(connection.id);
    told_.finished(record);
    one_less(near);
}

} // namespace kvmserver::daemon
