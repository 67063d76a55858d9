// Moves the bytes of a connection, and tells how it ended.
#include "src/daemon/tcp_relay.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>

#include "tests/catch.hpp"
#include "tinykvm/base/stream_pair.hpp"

using namespace kvmserver::daemon;
using State = TcpRelay::State;
using tinykvm::UniqueFd;

namespace {

struct Connection {
    Connection() {
        auto outer = tinykvm::stream_pair(), inner = tinykvm::stream_pair();
        client = std::move(outer.ours);
        program = std::move(inner.ours);
        relay.emplace(std::move(outer.theirs));
        relay->take_machine(std::move(inner.theirs));
    }
    State move() { return relay->move(room); }
    static void send(const UniqueFd& to, const std::string& text) {
        REQUIRE(::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
    }
    // "-": nothing yet; "": the end.
    static std::string receive(const UniqueFd& from) {
        char text[100];
        const ssize_t got = ::recv(from.get(), text, sizeof text, MSG_DONTWAIT);
        return got < 0 ? "-" : std::string(text, static_cast<std::size_t>(got));
    }

    UniqueFd client, program;
    std::optional<TcpRelay> relay;
    std::array<char, 4096> room{};
};

} // namespace

TEST_CASE("bytes go both ways, and ends of data each on its own") {
    Connection connection;
    CHECK(connection.move() == State::open);
    Connection::send(connection.program, "hello");
    Connection::send(connection.client, "question");
    CHECK(connection.move() == State::open);
    CHECK(Connection::receive(connection.client) == "hello");
    CHECK(Connection::receive(connection.program) == "question");
    ::shutdown(connection.client.get(), SHUT_WR);
    CHECK(connection.move() == State::open);
    CHECK(Connection::receive(connection.program) == "");
    CHECK(connection.relay->client_events() == 0); // nothing more can come from it
    Connection::send(connection.program, "answer");
    CHECK(connection.move() == State::open);
    CHECK(Connection::receive(connection.client) == "answer");
    ::shutdown(connection.program.get(), SHUT_WR);
    CHECK(connection.move() != State::open); // all is over, whichever side is asked
    CHECK(Connection::receive(connection.client) == "");
    CHECK(connection.relay->bytes_in() == 8);
    CHECK(connection.relay->bytes_out() == 11);
}

TEST_CASE("what a program sends before it closes arrives, though it has not read all") {
    Connection connection;
    Connection::send(connection.client, "unread");
    CHECK(connection.move() == State::open);
    Connection::send(connection.program, "bye");
    connection.program.reset();
    CHECK(connection.move() == State::machine_closed);
    CHECK(Connection::receive(connection.client) == "bye");
    CHECK(Connection::receive(connection.client) == "");
}

TEST_CASE("a client that reads slowly holds its program back, and gets all") {
    Connection connection;
    constexpr std::size_t kAll = 4 << 20;
    std::size_t sent = 0, got = 0;
    const std::string part(10'000, 'x');
    std::string buffer(100'000, '\0');
    bool held_back = false;
    State state = State::open;
    while (state == State::open) {
        const ssize_t n = sent >= kAll ? 0 : ::send(connection.program.get(), part.data(), part.size(), MSG_NOSIGNAL);
        if (n > 0)
            sent += static_cast<std::size_t>(n);
        if (sent >= kAll)
            connection.program.reset();
        state = connection.move();
        if (state == State::open && n < 0) { // it can send no more: now the client reads
            held_back |= (connection.relay->machine_events() & EPOLLIN) == 0 &&
                         (connection.relay->client_events() & EPOLLOUT) != 0;
            got += static_cast<std::size_t>(::recv(connection.client.get(), buffer.data(), buffer.size(), 0));
        } else if (sent >= kAll) {
            const ssize_t read = ::recv(connection.client.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            got += read > 0 ? static_cast<std::size_t>(read) : 0;
        }
    }
    CHECK(state == State::machine_closed);
    CHECK(held_back);
    for (ssize_t read; (read = ::recv(connection.client.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0;)
        got += static_cast<std::size_t>(read);
    CHECK(got == sent);
    CHECK(connection.relay->bytes_out() == sent);
}

TEST_CASE("a client that has gone is told from one that has only ended its data") {
    Connection connection;
    connection.client.reset();
    CHECK(connection.move() == State::open); // its end is passed on
    CHECK(Connection::receive(connection.program) == "");
    Connection::send(connection.program, "anybody?");
    CHECK(connection.move() == State::client_gone);
}
