// HTTP mode with machines that the test plays.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/runner/http_mode.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;
using tinykvm::UniqueFd;

namespace {

tinykvm::ListenerState loopback() {
    tinykvm::ListenerState state;
    state.id = 3;
    state.family = AF_INET;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    state.address.resize(sizeof address);
    std::memcpy(state.address.data(), &address, sizeof address);
    return state;
}

std::string reply_with(const std::string& body) {
    return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Serves until it is destroyed.
class Mode {
public:
    explicit Mode(unsigned machines) {
        tinykvm::ListenerState socket = loopback();
        REQUIRE(listeners_.bind(socket) == 0);
        REQUIRE(listeners_.listen(socket, 16) == 0);
        std::memcpy(&address_, socket.address.data(), sizeof address_);
        mode = std::make_unique<HttpMode>(listeners_, limits_, machines);
        thread_ = std::thread([this] { mode->serve(stop_); });
    }
    ~Mode() { end(); }
    void end() {
        stop_.request();
        if (thread_.joinable())
            thread_.join();
    }
    // A client that has asked for that path.
    UniqueFd ask(const std::string& path) {
        UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) == 0);
        const std::string text = "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n";
        REQUIRE(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
        return client;
    }

    std::unique_ptr<HttpMode> mode;

private:
    Listeners listeners_;
    tinykvm::Limits limits_;
    sockaddr_in address_{};
    Stopper stop_;
    std::thread thread_;
};

// Its next bytes.
std::string heard(const UniqueFd& client) {
    char text[4096];
    const ssize_t n = ::recv(client.get(), text, sizeof text, 0);
    return {text, static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
}

} // namespace

TEST_CASE("requests go to the machines as those become clean, the first that came first") {
    Mode mode(1);
    ConnectionSource& machine = mode.mode->add_machine();
    const UniqueFd first = mode.ask("/first");
    IncomingConnection incoming;
    REQUIRE(machine.next(incoming));
    CHECK(incoming.received.starts_with("GET /first "));
    const UniqueFd second = mode.ask("/second");
    incoming.memory->reply(reply_with("one"), request::Closing::clean);
    CHECK(heard(first).ends_with("one"));
    REQUIRE(machine.next(incoming));
    CHECK(incoming.received.starts_with("GET /second "));
    incoming.memory->reply(reply_with("two"), request::Closing::clean);
    CHECK(heard(second).ends_with("two"));
}

TEST_CASE("two machines have two requests, and a third one waits for either") {
    Mode mode(2);
    ConnectionSource &one = mode.mode->add_machine(), &two = mode.mode->add_machine();
    const UniqueFd a = mode.ask("/a");
    IncomingConnection in_one, in_two;
    REQUIRE(one.next(in_one));
    const UniqueFd b = mode.ask("/b");
    REQUIRE(two.next(in_two));
    CHECK(in_one.received.starts_with("GET /a "));
    CHECK(in_two.received.starts_with("GET /b "));
    const UniqueFd c = mode.ask("/c");
    in_two.memory->reply(reply_with("b"), request::Closing::clean);
    CHECK(heard(b).ends_with("b"));
    REQUIRE(two.next(in_two));
    CHECK(in_two.received.starts_with("GET /c "));
    in_two.memory->reply(reply_with("c"), request::Closing::clean);
    in_one.memory->reply(reply_with("a"), request::Closing::clean);
    CHECK(heard(c).ends_with("c"));
    CHECK(heard(a).ends_with("a"));
}

TEST_CASE("a machine that gives no reply has its client told what went wrong") {
    Mode mode(1);
    ConnectionSource& machine = mode.mode->add_machine();
    const UniqueFd client = mode.ask("/");
    IncomingConnection incoming;
    REQUIRE(machine.next(incoming));
    incoming.report_outcome(request::Outcome::no_progress);
    incoming.memory.reset();
    CHECK(heard(client).starts_with("HTTP/1.1 504 "));
}

TEST_CASE("a reply that comes later goes over a socket") {
    Mode mode(1);
    ConnectionSource& machine = mode.mode->add_machine();
    const UniqueFd client = mode.ask("/");
    IncomingConnection incoming;
    REQUIRE(machine.next(incoming));
    const UniqueFd socket = incoming.memory->connect();
    REQUIRE(socket);
    const std::string reply = reply_with("late");
    REQUIRE(::send(socket.get(), reply.data(), reply.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(reply.size()));
    CHECK(heard(client).ends_with("late"));
}

TEST_CASE("a client that goes away while it waits takes no machine") {
    Mode mode(1);
    ConnectionSource& machine = mode.mode->add_machine();
    const UniqueFd first = mode.ask("/first");
    IncomingConnection incoming;
    REQUIRE(machine.next(incoming));
    mode.ask("/gone").reset();
    const UniqueFd third = mode.ask("/third");
    // The third has been heard once its reply is here, and the end of the second came before it.
    incoming.memory->reply(reply_with("one"), request::Closing::clean);
    std::vector<std::string> served;
    do {
        REQUIRE(machine.next(incoming));
        served.push_back(incoming.received.substr(0, incoming.received.find(' ', 4)));
        incoming.memory->reply(reply_with("x"), request::Closing::clean);
    } while (served.back() != "GET /third");
    CHECK(heard(third).ends_with("x"));
    CHECK(served.size() <= 2); // it may have been given one before it was seen to have gone
}

TEST_CASE("at the end what is in a machine is finished, and machines that wait end") {
    Mode mode(2);
    ConnectionSource &one = mode.mode->add_machine(), &two = mode.mode->add_machine();
    const UniqueFd client = mode.ask("/");
    IncomingConnection incoming;
    REQUIRE(one.next(incoming));
    bool served = true; // Catch2's checks are for one thread
    std::thread idle([&two, &served] {
        IncomingConnection none;
        served = two.next(none);
    });
    std::thread ends([&mode] { mode.end(); });
    incoming.memory->reply(reply_with("done"), request::Closing::clean);
    incoming.memory.reset();
    CHECK(heard(client).ends_with("done"));
    ends.join();
    idle.join();
    CHECK_FALSE(served);
    CHECK_FALSE(one.next(incoming));
}
