// A machine's side of the worker protocol.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "src/runner/connections/channel_connections.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;
using protocol::Kind;
using tinykvm::UniqueFd;

namespace {

struct Channel {
    Channel() { std::tie(ours, theirs) = protocol::make_channel(); }
    protocol::Received receive() {
        auto received = protocol::receive(ours.get(), protocol::Wait::yes, nullptr, room);
        REQUIRE(received);
        return std::move(*received);
    }
    bool silent() const {
        pollfd readable{ours.get(), POLLIN, 0};
        return ::poll(&readable, 1, 0) == 0;
    }
    void request(std::string_view bytes, bool others_wait = false, bool more_follows = false) {
        protocol::Message message;
        message.kind = Kind::request;
        message.others_wait = others_wait;
        message.more_follows = more_follows;
        REQUIRE(protocol::send_bytes(ours.get(), message, bytes, protocol::Wait::no));
    }
    void say(Kind kind, int fd = -1) {
        protocol::Message message;
        message.kind = kind;
        REQUIRE(protocol::send(ours.get(), message, fd));
    }

    UniqueFd ours, theirs;
    std::string room = std::string(protocol::kMaxInline, '\0');
    Stopper stop;
};

} // namespace

TEST_CASE("a request comes with its first bytes, and its reply goes back at once") {
    Channel channel;
    ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop);
    channel.request("GET /");
    IncomingConnection incoming;
    REQUIRE(source.next(incoming));
    CHECK(channel.receive().message.kind == Kind::ready);
    CHECK(incoming.received == "GET /");
    CHECK(incoming.listener == 7);
    REQUIRE(incoming.memory);
    CHECK_FALSE(incoming.memory->more_follows());
    CHECK_FALSE(incoming.memory->gone());
    incoming.memory->reply("200", request::Closing::clean);
    const auto reply = channel.receive();
    CHECK(reply.message.kind == Kind::reply);
    CHECK(reply.bytes == "200");
    CHECK(reply.message.reset == 0);
    CHECK(reply.message.ready == 0);
}

TEST_CASE("where others wait for the machine, its reply and that it is clean are one message") {
    Channel channel;
    ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop);
    channel.request("first", true);
    channel.request("second");
    IncomingConnection incoming;
    REQUIRE(source.next(incoming));
    channel.receive();
    incoming.memory->reply("200", request::Closing::reset);
    incoming.memory.reset();
    CHECK(channel.silent());
    source.served({.exec_ns = 5000, .reset_ns = 3000});
    REQUIRE(source.next(incoming));
    const auto reply = channel.receive();
    CHECK(reply.message.kind == Kind::reply);
    CHECK(reply.bytes == "200");
    CHECK(reply.message.reset == 1);
    CHECK(reply.message.ready == 1);
    CHECK(reply.message.exec_us == 5);
    CHECK(incoming.received == "second");
}

TEST_CASE("a reply that waits for its machine is told when that cannot be made clean") {
    Channel channel;
    {
        ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop);
        channel.request("first", true);
        IncomingConnection incoming;
        REQUIRE(source.next(incoming));
        channel.receive();
        incoming.memory->reply("200", request::Closing::clean);
    }
    const auto reply = channel.receive();
    CHECK(reply.bytes == "200");
    CHECK(reply.message.ready == 0);
}

TEST_CASE("a request that gets no reply is told to be broken off") {
    Channel channel;
    ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop);
    channel.request("first", GENERATE(false, true));
    IncomingConnection incoming;
    REQUIRE(source.next(incoming));
    channel.receive();
    incoming.report_outcome(request::Outcome::program_failed);
    incoming.memory.reset();
    const auto ended = channel.receive();
    CHECK(ended.message.kind == Kind::ended);
    CHECK(ended.message.outcome == request::Outcome::program_failed);
    const auto reply = channel.receive();
    CHECK(reply.message.kind == Kind::reply);
    CHECK(reply.message.reset == 1);
    CHECK(reply.bytes.empty());
}

TEST_CASE("what comes later goes over a socket, which the daemon gives") {
    Channel channel;
    ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop);
    channel.request("POST", false, true);
    IncomingConnection incoming;
    REQUIRE(source.next(incoming));
    channel.receive();
    CHECK(incoming.memory->more_follows());
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const UniqueFd in(pipe[0]), out(pipe[1]);
    const bool given = GENERATE(true, false);
    channel.say(Kind::cancel); // that nobody waits any longer is no answer
    channel.say(Kind::connected, given ? in.get() : -1);
    CHECK(static_cast<bool>(incoming.memory->connect()) == given);
    CHECK(channel.receive().message.kind == Kind::connect);
    incoming.memory.reset();
    CHECK(channel.silent());
}

TEST_CASE("a client that goes away is seen while its request runs, and not by the next") {
    Channel channel;
    ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop);
    channel.request("first");
    IncomingConnection incoming;
    REQUIRE(source.next(incoming));
    channel.receive();
    channel.say(Kind::cancel);
    CHECK(incoming.memory->gone());
    incoming.memory->reply("200", request::Closing::clean);
    channel.receive();
    channel.request("second");
    REQUIRE(source.next(incoming));
    CHECK(channel.receive().message.kind == Kind::ready);
    CHECK(channel.silent()); // it was ready once
    CHECK(incoming.received == "second");
    CHECK_FALSE(incoming.memory->gone());
}

TEST_CASE("a machine ends when its channel does, or sends an invalid request") {
    Channel channel;
    ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop);
    if (GENERATE(true, false))
        channel.ours.reset();
    else
        channel.say(Kind::connected);
    IncomingConnection incoming;
    CHECK_FALSE(source.next(incoming));
}

TEST_CASE("a connection of a TCP function comes before its client has said anything") {
    Channel channel;
    ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop, {{5432, 9}});
    const auto give = [&](std::uint16_t listen_port, protocol::Stream how = protocol::Stream::at_port) {
        int pair[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        const UniqueFd theirs(pair[1]);
        protocol::Message message;
        message.kind = Kind::request;
        message.stream = how;
        message.address_bytes = 4;
        message.address = {192, 0, 2, 1};
        message.port = 40001;
        message.listen_port = listen_port;
        REQUIRE(protocol::send(channel.ours.get(), message, theirs.get()));
        return UniqueFd(pair[0]);
    };
    const UniqueFd first = give(5432);
    IncomingConnection incoming;
    REQUIRE(source.next(incoming));
    CHECK(incoming.fd);
    CHECK(incoming.stream);
    CHECK(incoming.own); // the program sees its own address
    CHECK(incoming.listener == 9);
    const auto& peer = reinterpret_cast<const sockaddr_in&>(incoming.peer.storage);
    CHECK(ntohs(peer.sin_port) == 40001);
    CHECK(ntohl(peer.sin_addr.s_addr) == 0xc0000201);
    const UniqueFd second = give(1);
    incoming = {};
    REQUIRE(source.next(incoming));
    CHECK(incoming.listener == 7); // its first
    const UniqueFd third = give(9, protocol::Stream::at_listener);
    incoming = {};
    REQUIRE(source.next(incoming));
    CHECK(incoming.listener == 9);
}

TEST_CASE("who waits for long for a request is told once, until the next") {
    Channel channel;
    ChannelConnections source(channel.theirs.get(), 7, {}, channel.stop);
    int told = 0;
    source.when_idle(std::chrono::milliseconds(1), [&] {
        ++told;
        channel.request("GET /"); // only now
    });
    IncomingConnection incoming;
    for (int request = 1; request <= 3; ++request) {
        REQUIRE(source.next(incoming));
        CHECK(told == request);
        CHECK(incoming.received == "GET /");
        CHECK(channel.receive().message.kind == Kind::ready);
        incoming.memory->reply("200", request::Closing::clean);
        channel.receive();
    }
    CHECK(channel.silent()); // it has said `ready` once for each
}
