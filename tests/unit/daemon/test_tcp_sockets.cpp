// Which addresses of TCP functions are open, who may have them, and what becomes of those that are taken.
#include "src/daemon/tcp_sockets.hpp"

#include <sys/socket.h>

#include <string>
#include <vector>

#include "src/store/errors.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;
using namespace kvmserver::daemon;
using tinykvm::UniqueFd;

namespace {

// An address that is free, as far as can be known.
ListenAddress fresh() {
    ListenAddress any = ListenAddress::parse("", "127.0.0.1:1");
    any.port = 0;
    return ListenAddress::of_socket(listen_at(any).get());
}

std::shared_ptr<const Destination> destination(const std::string& function) {
    auto made = std::make_shared<Destination>();
    made->function = function;
    return made;
}

bool somebody_listens(const ListenAddress& address) {
    sockaddr_storage where;
    const socklen_t bytes = address.to(where);
    const UniqueFd client(::socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ::connect(client.get(), reinterpret_cast<const sockaddr*>(&where), bytes) == 0;
}

struct SocketWorld {
    void want(const TcpTable& table) {
        sockets.want([&] { return table; });
    }
    std::vector<std::string> notes;
    TcpSockets sockets{{}, [this](const std::string& line) { notes.push_back(line); }};
};

} // namespace

TEST_CASE("what is wanted is open, and nothing else") {
    SocketWorld world;
    const ListenAddress first = fresh(), second = fresh();
    world.want({{first, destination("a")}});
    CHECK(somebody_listens(first));
    const auto before = world.sockets.open().at(first).socket;
    world.want({{first, destination("b")}, {second, destination("b")}});
    CHECK(world.sockets.open().at(first).socket == before); // nobody was refused meanwhile
    CHECK(world.sockets.open().at(first).destination->function == "b");
    CHECK(somebody_listens(second));
    world.want({{second, destination("b")}});
    CHECK(somebody_listens(first)); // as long as somebody holds it
}

TEST_CASE("an address that is taken is told once, and had once it is free") {
    SocketWorld world;
    const ListenAddress address = fresh();
    UniqueFd other = listen_at(address);
    world.want({{address, destination("pg")}});
    world.want({{address, destination("pg")}});
    CHECK(world.notes == std::vector<std::string>{"pg: cannot listen on " + address.text() +
                                                  ": Address already in use; choose another address, or stop what "
                                                  "listens there"});
    CHECK(world.sockets.open().empty());
    CHECK_THROWS_AS(world.sockets.claim("other", {address}, true), store::Conflict);
    other.reset();
    world.want({{address, destination("pg")}});
    CHECK(world.sockets.open().size() == 1);
}

TEST_CASE("a claim keeps an address for the table that follows") {
    SocketWorld world;
    const ListenAddress first = fresh(), second = fresh();
    world.sockets.claim("a", {first}, false); // only looks
    CHECK_FALSE(somebody_listens(first));
    world.sockets.claim("a", {first}, true);
    CHECK_THROWS_AS(listen_at(first), store::Conflict);
    world.sockets.claim("a", {first}, true); // again, as a deploy that is repeated
    world.want({{first, destination("a")}});
    CHECK(somebody_listens(first));
    CHECK(world.notes.empty());
    world.sockets.claim("a", {first, second}, true); // its own
    CHECK_THROWS_AS(world.sockets.claim("b", {first}, true), store::Conflict);
    ListenAddress everywhere = ListenAddress::parse("", ":1");
    everywhere.port = first.port;
    CHECK_THROWS_AS(world.sockets.claim("b", {everywhere}, true), store::Conflict);
    world.sockets.claim("a", {everywhere}, true); // it will replace its own
    world.want({{everywhere, destination("a")}});
    CHECK(world.sockets.open().contains(everywhere));
}

TEST_CASE("a predecessor's sockets are taken over, and none is opened once all are closed") {
    const ListenAddress address = fresh();
    std::vector<UniqueFd> inherited;
    inherited.push_back(listen_at(address));
    const int fd = inherited.front().get();
    TcpSockets sockets(std::move(inherited), [](const std::string&) {});
    sockets.want([&] { return TcpTable{{address, destination("pg")}}; });
    CHECK(sockets.open().at(address).socket->get() == fd);
    sockets.close_all();
    CHECK_FALSE(somebody_listens(address));
    CHECK_FALSE(sockets.want([&] { return TcpTable{{address, destination("pg")}}; }));
    CHECK_FALSE(somebody_listens(address));
}
