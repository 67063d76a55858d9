#include "tinykvm/linux/listens_at.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"

using tinykvm::listens_at;

namespace {

using Address = std::vector<std::uint8_t>;

template <class T>
Address bytes_of_address(const T& address, std::size_t bytes = sizeof(T)) {
    const auto* const first = reinterpret_cast<const std::uint8_t*>(&address);
    return {first, first + bytes};
}

Address v4(const char* ip, std::uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    REQUIRE(::inet_pton(AF_INET, ip, &in.sin_addr) == 1);
    return bytes_of_address(in);
}

Address v6(const char* ip, std::uint16_t port) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    REQUIRE(::inet_pton(AF_INET6, ip, &in.sin6_addr) == 1);
    return bytes_of_address(in);
}

// `more`: bytes after the name.
Address local(std::string_view name, std::size_t more = 0) {
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path, name.data(), name.size());
    return bytes_of_address(un, offsetof(sockaddr_un, sun_path) + name.size() + more);
}

bool reaches(const Address& to, const Address& own, bool v6_only = false) {
    return listens_at(own, v6_only, reinterpret_cast<const sockaddr*>(to.data()), static_cast<socklen_t>(to.size()));
}

} // namespace

TEST_CASE("which connections reach a socket that listens") {
    CHECK(reaches(v4("127.0.0.1", 80), v4("127.0.0.1", 80)));
    CHECK_FALSE(reaches(v4("127.0.0.1", 81), v4("127.0.0.1", 80)));
    CHECK_FALSE(reaches(v4("127.0.0.2", 80), v4("127.0.0.1", 80)));
    CHECK(reaches(v4("127.0.0.2", 80), v4("0.0.0.0", 80)));
    CHECK(reaches(v4("0.0.0.0", 80), v4("0.0.0.0", 80)));
    CHECK_FALSE(reaches(v4("192.0.2.1", 80), v4("0.0.0.0", 80)));
    CHECK_FALSE(reaches(v6("::1", 80), v4("0.0.0.0", 80)));
    CHECK(reaches(v6("::1", 80), v6("::", 80)));
    CHECK(reaches(v4("127.0.0.1", 80), v6("::", 80)));
    CHECK_FALSE(reaches(v4("127.0.0.1", 80), v6("::", 80), true));
    CHECK_FALSE(reaches(v6("2001:db8::1", 80), v6("::", 80)));
    CHECK(reaches(v6("2001:db8::1", 80), v6("2001:db8::1", 80)));
}

TEST_CASE("which connections reach a Unix socket that listens") {
    using namespace std::string_view_literals;
    CHECK(reaches(local("/run/a"), local("/run/a", 1)));
    CHECK(reaches(local("/run/a", 20), local("/run/a")));
    CHECK_FALSE(reaches(local("/run/ab"), local("/run/a")));
    CHECK(reaches(local("\0a"sv), local("\0a"sv)));
    CHECK_FALSE(reaches(local("\0a\0"sv), local("\0a"sv))); // each byte of an abstract name counts
    CHECK_FALSE(reaches(local("a"), local("\0a"sv)));
    CHECK_FALSE(reaches(local(""), local(""))); // a socket without a name
    CHECK_FALSE(reaches(v4("127.0.0.1", 80), local("/run/a")));
    CHECK_FALSE(reaches(local("/run/a"), v4("127.0.0.1", 80)));
}

TEST_CASE("what is no address reaches nothing") {
    const Address whole = v4("127.0.0.1", 80);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        const Address part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
        CHECK_FALSE(listens_at(part, false, reinterpret_cast<const sockaddr*>(whole.data()), sizeof(sockaddr_in)));
        CHECK_FALSE(reaches(part, whole));
    }
}
