// Addresses of --listen: read, and told to people.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "src/event_loop/listeners.hpp"
#include "tests/catch.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

using namespace kvmserver;
using tinykvm::ExitCode;
using tinykvm::UserError;

namespace {

std::string read_and_told(const std::string& text) {
    const SocketAddress address = parse_listen_address(text);
    return to_string(address.get(), address.bytes);
}

} // namespace

TEST_CASE("an address of --listen is one that a server can be at") {
    CHECK(read_and_told("127.0.0.1:8080") == "127.0.0.1:8080");
    CHECK(read_and_told("localhost:80") == "127.0.0.1:80");
    CHECK(read_and_told(":80") == "0.0.0.0:80");
    CHECK(read_and_told("[::1]:80") == "[::1]:80");
    CHECK(read_and_told("[::]:1") == "[::]:1");
    CHECK(read_and_told("unix:/run/a.sock") == "unix:/run/a.sock");
    const std::string longest = "unix:/" + std::string(sizeof(sockaddr_un::sun_path) - 2, 'a');
    CHECK(read_and_told(longest) == longest);
}

TEST_CASE("what is no address is refused, with the option's name") {
    for (const std::string& bad :
         {std::string("unix:"), "unix:/" + std::string(sizeof(sockaddr_un::sun_path) - 1, 'a'), std::string("8080"),
          std::string("example.com:80"), std::string("http://127.0.0.1:80"), std::string("127.0.0.1:99999"),
          std::string("*:80")}) {
        CAPTURE(bad);
        try {
            parse_listen_address(bad);
            FAIL_CHECK("it was taken");
        } catch (const UserError& error) {
            CHECK(error.code() == ExitCode::usage);
            CHECK(std::string(error.what()).find("--listen") == 0);
        }
    }
}

TEST_CASE("an abstract Unix name and an address of a strange family are told as such") {
    sockaddr_un abstract{};
    abstract.sun_family = AF_UNIX;
    std::memcpy(abstract.sun_path, "\0name", 5);
    CHECK(to_string(reinterpret_cast<const sockaddr*>(&abstract), offsetof(sockaddr_un, sun_path) + 5) == "unix:@name");
    // Without its end, as accept(2) may say it.
    std::memset(abstract.sun_path, 'x', sizeof abstract.sun_path);
    CHECK(to_string(reinterpret_cast<const sockaddr*>(&abstract), sizeof abstract) ==
          "unix:" + std::string(sizeof abstract.sun_path, 'x'));
    sockaddr_in short_one{};
    short_one.sin_family = AF_INET;
    CHECK(to_string(reinterpret_cast<const sockaddr*>(&short_one), 4) == "an address of family 2");
}

TEST_CASE("a descriptor of --listen must be one that was inherited, and that listens") {
    for (const char* bad : {"fd:", "fd:x", "fd:3x", "fd:-1", "fd:0", "fd:2", "fd:1000000", "fd:99999999999"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(parse_listen_fd(bad), UserError);
    }
    const tinykvm::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(parse_listen_fd("fd:" + std::to_string(socket.get())) == socket.get());
    Listeners listeners;
    try {
        listeners.override_first(tinykvm::UniqueFd(::dup(socket.get())));
        FAIL("it does not listen");
    } catch (const UserError& error) {
        CHECK(std::string(error.what()).find("not a listening socket") != std::string::npos);
    }
    REQUIRE(::listen(socket.get(), 1) == 0);
    CHECK_NOTHROW(listeners.override_first(tinykvm::UniqueFd(::dup(socket.get()))));
}
