// Functions that another daemon has taken over, and those that come from one.
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

#include "src/store/functions/moved.hpp"
#include "src/store/functions/served.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;

namespace {

Moved moved_to(const std::string& url) {
    Moved moved;
    moved.to = url;
    moved.forward = "http://127.0.0.1:8080";
    moved.version = 3;
    moved.pending = true;
    moved.token = "secret";
    return moved;
}

} // namespace

TEST_CASE("a function that has moved is not changed here, and remembers where it is when the index is lost") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    {
        Store store(path);
        Functions functions(store);
        deploy(store, "hello", 1);
        deploy(store, "hello", 2);
        CHECK_THROWS_AS(functions.move("hello", 1, moved_to("https://b:1")), Conflict); // v2 has the requests
        CHECK_THROWS_AS(functions.move("hello", 2, moved_to("https://b:1"), "0-1"), StaleEtag);
        CHECK_THROWS_AS(functions.move("hello", 2, moved_to("")), BadValue);
        CHECK(functions.pending_moves().empty());
        functions.move("hello", 2, moved_to("https://b:1"));
        CHECK(functions.pending_moves().at("hello") == moved_to("https://b:1"));
        CHECK_THROWS_AS(functions.rollback("hello"), Conflict);
        CHECK_THROWS_AS(functions.set_traffic("hello", {{1, 100}}), Conflict);
        CHECK_THROWS_AS(deploy(store, "hello", 3), Conflict);
        CHECK(functions.list().at(0).moved == moved_to("https://b:1"));
        CHECK(Served(store).find("hello")->moved == moved_to("https://b:1"));
    }
    for (const char* const lost : {"index.db", "index.db-wal", "index.db-shm"})
        fs::remove(path / lost);
    Store store(path);
    Functions functions(store);
    CHECK(functions.describe("hello").moved == moved_to("https://b:1"));
    functions.move_is_over("hello");
    const Moved over = functions.describe("hello").moved.value();
    CHECK(!over.pending);
    CHECK(over.token.empty()); // it is not kept for longer than it is needed
    CHECK(over.to == "https://b:1");
    CHECK(functions.pending_moves().empty());
    functions.move_is_over("hello");
    functions.move_is_over("nobody");
    CHECK(lines_of(verify(path)).empty());
}

TEST_CASE("a function whose migration was refused is served here again") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    deploy(store, "hello", 1);
    functions.move("hello", 1, moved_to("https://b:1"));
    functions.stay("hello");
    CHECK(!functions.describe("hello").moved);
    CHECK(deploy(store, "hello", 2).live.at(0).version == 2);
    functions.stay("hello");
    functions.stay("nobody");
    CHECK(functions.history("hello").at(1).action == "migrate");
}

TEST_CASE("a version that arrives gets no requests before it is taken over, and all of them afterwards") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    CHECK(arrive(store, "hello", 7) == 7);
    CHECK(functions.describe("hello").live.empty());
    CHECK(functions.describe("hello").secrets == std::vector<std::string>{"WORD"});
    CHECK_THROWS_AS(functions.set_traffic("hello", {{7, 100}}), Conflict);
    CHECK_THROWS_AS(functions.take_over("hello", 6), NotFound);
    functions.take_over("hello", 7);
    CHECK(functions.describe("hello").live == std::vector<Live>{{7, 100}});
    // Asked again, after another version went live: nothing changes.
    CHECK(deploy(store, "hello", 2).version == 8);
    functions.take_over("hello", 7);
    CHECK(functions.describe("hello").live == std::vector<Live>{{8, 100}});
    // It leaves, and comes back: its number is taken by then.
    functions.move("hello", 8, moved_to("https://b:1"));
    CHECK(arrive(store, "hello", 8) == 9);
    CHECK(functions.describe("hello").moved);
    functions.take_over("hello", 9);
    CHECK(!functions.describe("hello").moved);
    CHECK(functions.describe("hello").live == std::vector<Live>{{9, 100}});
    CHECK(arrive(store, "hello", 0) == 10);
    functions.set_state("hello", 10, VersionState::failed);
    CHECK_THROWS_AS(functions.take_over("hello", 10), Conflict);
}

TEST_CASE("where requests are forwarded to") {
    const auto at = [](const char* url) {
        const ForwardAddress address = forward_address(url);
        return address.host + " " + std::to_string(address.port);
    };
    CHECK(at("http://127.0.0.1:8080") == "127.0.0.1 8080");
    CHECK(at("http://b.example:80/") == "b.example 80");
    CHECK(at("http://[::1]:65535") == "::1 65535");
    CHECK(at("https://b.example:443") == "b.example 443");
    CHECK(forward_address("https://b:1").tls);
    CHECK(!forward_address("http://b:1").tls);
    for (const char* const wrong : {"", "b:80", "http://", "http://b", "http://b:", "http://b:0", "http://b:65536",
                                    "http://b:8080x", "http://:80", "http://::1:80", "http://[b]:80", "http://[::1:80",
                                    "http://b:80/path", "http://u@b:80", "https://b", "ftp://b:21"})
        CHECK_THROWS_AS(forward_address(wrong), BadValue);
}
