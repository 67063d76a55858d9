// How a request hears of its reply: with a notice, or, if the client has it already, when it looks.
#include "src/http/answer.hpp"

#include <sys/socket.h>

#include <memory>
#include <string>

#include <boost/asio/detached.hpp>

#include "src/http/late_look.hpp"
#include "src/http/stack_pool.hpp"
#include "tests/catch.hpp"
#include "tinykvm/base/stream_pair.hpp"

using namespace kvmserver::http;

namespace {

const std::string kReply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

// A request that waits for its answer, on this thread. Its client's socket is `client`.
class Waiting {
public:
    explicit Waiting(const std::string& fields = "") : bytes_("GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n") {
        REQUIRE_FALSE(parse_request_head(bytes_, {}, head_));
        auto [ours, theirs] = tinykvm::stream_pair();
        REQUIRE(ours);
        ours_ = std::move(ours);
        client = std::move(theirs);
        answer->direct = DirectReply::allowed(ours_.get(), head_, options_, draining_);
        REQUIRE(answer->direct);
        answer->may_be_unannounced = true;
        asio::spawn(
            io.get_executor(), std::allocator_arg, StackAllocator{&stacks_},
            [this](Yield yield) {
                got = answer->wait(yield);
                over = true;
            },
            asio::detached);
        turn();
    }
    // Runs what is ready.
    void turn() {
        io.restart();
        io.poll();
    }
    void reply() { answer->replied(kReply, Closing::clean, Sender::caller); }
    std::string sent() const {
        char room[256];
        const ssize_t n = ::recv(client.get(), room, sizeof room, MSG_DONTWAIT);
        return n > 0 ? std::string(room, static_cast<std::size_t>(n)) : "";
    }
    bool ended() const {
        char byte;
        return ::recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
    }

private:
    StackPool stacks_;

public:
    asio::io_context io;
    std::shared_ptr<Answer> answer = std::make_shared<Answer>(io);
    tinykvm::UniqueFd client;
    bool over = false, got = false;

private:
    const std::string bytes_;
    RequestHead head_;
    Options options_;
    std::atomic<bool> draining_{false};
    tinykvm::UniqueFd ours_;
};

} // namespace

TEST_CASE("a reply that the client has is found by looking") {
    Waiting request;
    request.reply();
    request.turn();
    CHECK(request.sent() == kReply);
    CHECK_FALSE(request.over); // nobody woke it
    CHECK(request.answer->look());
    CHECK(request.answer->look()); // before it goes on, too
    request.turn();
    CHECK((request.over && request.got));
    CHECK(request.answer->sent);
}

TEST_CASE("a reply after a look comes with a notice") {
    Waiting request;
    CHECK_FALSE(request.answer->look());
    request.reply();
    CHECK(request.sent() == kReply);
    request.turn();
    CHECK((request.over && request.got));
}

TEST_CASE("a reply is found some time later in any case") {
    Waiting request;
    LateLook late(request.io);
    late.add(request.answer);
    request.reply();
    request.io.restart();
    while (!request.over && request.io.run_one() != 0) {
    }
    CHECK(request.got);
}

TEST_CASE("what the socket does not take comes with a notice") {
    Waiting request;
    const std::string body(4 << 20, 'x');
    request.answer->replied("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
                            Closing::clean, Sender::caller);
    request.turn();
    CHECK(request.over);
    CHECK_FALSE(request.answer->direct->rest().empty());
}

TEST_CASE("a request that waits no longer has the reply that was sent, and no later one") {
    Waiting in_time;
    in_time.reply();
    in_time.answer->interrupt();
    in_time.turn();
    CHECK((in_time.over && in_time.got));

    Waiting late;
    bool abandoned = false;
    late.answer->on_abandon = [&] { abandoned = true; };
    late.answer->interrupt();
    late.turn();
    CHECK((late.over && !late.got));
    CHECK((abandoned && late.answer->abandoned()));
    late.reply();
    CHECK(late.sent().empty());
}

TEST_CASE("a reply sent at once ends the connection if the client wants that") {
    Waiting request("Connection: close\r\n");
    request.reply();
    const std::string sent = request.sent();
    CHECK(sent.find("\r\nConnection: close\r\n") != sent.npos);
    CHECK(request.ended());

    Waiting other;
    other.reply();
    CHECK_FALSE(other.sent().empty());
    CHECK_FALSE(other.ended());
    for (Waiting* one : {&request, &other})
        CHECK(one->answer->look());
    request.turn();
    other.turn();
    CHECK((request.over && other.over));
}
