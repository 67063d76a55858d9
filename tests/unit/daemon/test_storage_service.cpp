// Connections to a storage, from processes of functions that are sound, and such that are not.
#include "src/daemon/storage_service.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>

#include "src/daemon/worker_pool.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;
using namespace kvmserver::daemon;
using tinykvm::UniqueFd;

namespace {

protocol::StorageAddress at_port(std::uint16_t port) {
    protocol::StorageAddress address;
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in->sin_port = htons(port);
    address.bytes = sizeof *in;
    return address;
}

struct Stream {
    Stream() {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        ours = UniqueFd(ends[0]);
        theirs = UniqueFd(ends[1]);
    }
    UniqueFd ours, theirs;
};

struct Storages {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<StorageConnection> taken;
    std::vector<std::string> reports;
    protocol::StorageAnswer answer;
    StorageService service{[this](StorageConnection connection) {
                               const std::lock_guard lock(mutex);
                               if (answer.error == 0)
                                   taken.push_back(std::move(connection));
                               return answer;
                           },
                           [this](const std::string& line) {
                               const std::lock_guard lock(mutex);
                               reports.push_back(line);
                               changed.notify_all();
                           }};
    ~Storages() { service.end(); }

    // Of a process that was disconnected.
    std::string report() {
        std::unique_lock lock(mutex);
        REQUIRE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return !reports.empty(); }));
        const std::string line = reports.front();
        reports.clear();
        return line;
    }
};

std::optional<protocol::StorageAnswer> ask(const UniqueFd& process, const Stream& stream) {
    REQUIRE(protocol::send_storage_request(process.get(), at_port(6379), at_port(40000), stream.theirs.get()));
    return protocol::receive_storage_answer(process.get());
}

bool is_closed(const UniqueFd& socket) {
    pollfd one{socket.get(), POLLIN, 0};
    REQUIRE(::poll(&one, 1, 30'000) == 1);
    char byte;
    return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
}

} // namespace

TEST_CASE("a connection reaches its storage with both addresses") {
    Storages all;
    const UniqueFd process = all.service.admit("shop v4", "shelf");
    const Stream stream;
    const auto answer = ask(process, stream);
    REQUIRE(answer);
    CHECK(answer->error == 0);
    REQUIRE(all.taken.size() == 1);
    const StorageConnection& got = all.taken.front();
    CHECK(got.from == "shop v4");
    CHECK(got.storage == "shelf");
    CHECK(reinterpret_cast<const sockaddr_in*>(got.request.to.get())->sin_port == htons(6379));
    CHECK(reinterpret_cast<const sockaddr_in*>(got.request.from.get())->sin_port == htons(40000));
    REQUIRE(::write(got.request.stream.get(), "x", 1) == 1);
    char byte = 0;
    CHECK(::read(stream.ours.get(), &byte, 1) == 1);
    CHECK(byte == 'x');
}

TEST_CASE("why there is no connection is told") {
    Storages all;
    all.answer = {ECONNREFUSED, std::string(5000, 'y')};
    const UniqueFd process = all.service.admit("shop v4", "shelf");
    const auto answer = ask(process, Stream());
    REQUIRE(answer);
    CHECK(answer->error == ECONNREFUSED);
    CHECK(answer->reason == std::string(512, 'y'));
}

TEST_CASE("a process may have so many connections open") {
    Storages all;
    const UniqueFd process = all.service.admit("shop v4", "shelf"), other = all.service.admit("blog v1", "shelf");
    for (unsigned i = 0; i < StorageService::kMaxOpen; ++i) {
        const auto answer = ask(process, Stream());
        REQUIRE(answer);
        REQUIRE(answer->error == 0);
        all.taken.back().request.stream.reset(); // for this process's own limit of descriptors
    }
    CHECK(ask(process, Stream())->error == EAGAIN);
    CHECK(ask(other, Stream())->error == 0); // another's do not count
    all.taken.pop_front();                   // one is over
    CHECK(ask(process, Stream())->error == 0);
    CHECK(ask(process, Stream())->error == EAGAIN);
}

TEST_CASE("a process that violates the protocol is disconnected, and others are not") {
    Storages all;
    const UniqueFd good = all.service.admit("shop v4", "shelf"), bad = all.service.admit("mallory v1", "shelf");
    const Stream stream;
    SECTION("too short") {
        REQUIRE(protocol::send_packet(bad.get(), std::as_bytes(std::span("hello")), {}, protocol::Wait::yes));
    }
    SECTION("no stream") {
        const auto to = at_port(1);
        REQUIRE(protocol::send_packet(bad.get(), std::as_bytes(std::span(&to, 1)), {}, protocol::Wait::yes,
                                      std::as_bytes(std::span(&to, 1))));
    }
    SECTION("an address longer than any") {
        auto to = at_port(1);
        to.bytes = sizeof to.storage + 1;
        REQUIRE(protocol::send_storage_request(bad.get(), to, at_port(2), stream.theirs.get()));
    }
    SECTION("an address of no family") {
        auto from = at_port(1);
        from.bytes = 1;
        REQUIRE(protocol::send_storage_request(bad.get(), at_port(2), from, stream.theirs.get()));
    }
    SECTION("a file") {
        const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
        REQUIRE(protocol::send_storage_request(bad.get(), at_port(1), at_port(2), file.get()));
    }
    SECTION("a socket of another kind") {
        const auto [ours, theirs] = protocol::make_pair();
        REQUIRE(protocol::send_storage_request(bad.get(), at_port(1), at_port(2), theirs.get()));
    }
    SECTION("a socket of the network") {
        const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(protocol::send_storage_request(bad.get(), at_port(1), at_port(2), socket.get()));
    }
    SECTION("answers that are not read") {
        all.answer = {ECONNREFUSED, ""};
        for (int i = 0; i < 2; ++i)
            REQUIRE(protocol::send_storage_request(bad.get(), at_port(1), at_port(2), stream.theirs.get()));
    }
    CHECK(all.report().starts_with("mallory v1: its process violates the storage protocol: it "));
    while (!is_closed(bad)) { // an answer may still be there
    }
    all.answer = {};
    CHECK(ask(good, stream)->error == 0);
}
