#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "tests/catch.hpp"
#include "tinykvm/linux/net_rules.hpp"
#include "tinykvm/linux/policy.hpp"

using namespace tinykvm;

namespace {

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address ipv4(const char* host, std::uint16_t port) {
    Address address;
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    REQUIRE(inet_pton(AF_INET, host, &in->sin_addr) == 1);
    address.length = sizeof *in;
    return address;
}

Address ipv6(const char* host, std::uint16_t port) {
    Address address;
    auto* in = reinterpret_cast<sockaddr_in6*>(&address.storage);
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    REQUIRE(inet_pton(AF_INET6, host, &in->sin6_addr) == 1);
    address.length = sizeof *in;
    return address;
}

Policy with(std::vector<NetRule> connect, std::vector<NetRule> listen = {}) {
    Permissions permissions;
    permissions.connect = std::move(connect);
    permissions.listen = std::move(listen);
    return Policy(permissions);
}

bool connects(const Policy& policy, const Address& to) { return policy.may_connect(to.get(), to.length); }
bool listens(const Policy& policy, const Address& at) { return policy.may_listen(at.get(), at.length); }

} // namespace

TEST_CASE("nothing may be connected to without a rule") {
    const Policy policy = with({});
    CHECK_FALSE(connects(policy, ipv4("127.0.0.1", 80)));
    CHECK_FALSE(listens(policy, ipv4("127.0.0.1", 80)));
    CHECK_FALSE(policy.may_bind_ephemeral());
}

TEST_CASE("localhost is both loopbacks and nothing else") {
    const Policy policy = with({{"localhost", 80}});
    CHECK(connects(policy, ipv4("127.0.0.1", 80)));
    CHECK(connects(policy, ipv6("::1", 80)));
    CHECK(connects(policy, ipv6("::ffff:127.0.0.1", 80)));
    CHECK_FALSE(connects(policy, ipv4("127.0.0.1", 81)));
    CHECK_FALSE(connects(policy, ipv4("127.0.0.2", 80)));
    CHECK_FALSE(connects(policy, ipv4("10.0.0.1", 80)));
}

TEST_CASE("connecting to the wildcard is connecting to the loopback") {
    CHECK(connects(with({{"localhost", 0}}), ipv4("0.0.0.0", 80)));
    CHECK(connects(with({{"localhost", 0}}), ipv6("::", 80)));
    CHECK_FALSE(connects(with({{"10.0.0.1", 0}}), ipv4("0.0.0.0", 80)));
}

TEST_CASE("empty host, port 0, IPv4 in IPv6 clothes") {
    CHECK(connects(with({{"", 80}}), ipv4("8.8.8.8", 80)));
    CHECK_FALSE(connects(with({{"", 80}}), ipv4("8.8.8.8", 81)));
    CHECK(connects(with({{"8.8.8.8", 0}}), ipv6("::ffff:8.8.8.8", 9)));
    CHECK_FALSE(connects(with({{"8.8.8.8", 0}}), ipv6("::8.8.8.8", 9)));
}

TEST_CASE("listening on more than the rule names is refused") {
    CHECK_FALSE(listens(with({}, {{"localhost", 80}}), ipv4("0.0.0.0", 80)));
    CHECK(listens(with({}, {{"localhost", 80}}), ipv4("127.0.0.1", 80)));
    CHECK(listens(with({}, {{"0.0.0.0", 80}}), ipv4("0.0.0.0", 80)));
    CHECK(listens(with({}, {{"0.0.0.0", 80}}), ipv4("127.0.0.1", 80)));
    CHECK_FALSE(listens(with({}, {{"0.0.0.0", 80}}), ipv6("::", 80)));
    CHECK(listens(with({}, {{"::", 80}}), ipv4("0.0.0.0", 80)));
    CHECK(listens(with({}, {{"", 80}}), ipv6("::", 80)));
}

TEST_CASE("addresses that are cut short or of another family match nothing") {
    Permissions permissions;
    permissions.all = true;
    const Policy policy(permissions);
    Address address = ipv4("1.2.3.4", 5);
    CHECK(connects(policy, address));
    for (socklen_t length = 0; length < sizeof(sockaddr_in); ++length) {
        address.length = length;
        CHECK_FALSE(connects(policy, address));
    }
    Address six = ipv6("::1", 5);
    six.length = 23;
    CHECK_FALSE(connects(policy, six));
    six.length = 24;
    CHECK(connects(policy, six));
    address.storage.ss_family = AF_UNIX;
    address.length = sizeof(sockaddr_un);
    CHECK_FALSE(connects(policy, address));
}

TEST_CASE("a name without an address allows nothing and says so") {
    const Policy policy = with({{"no-such-host.invalid", 80}});
    CHECK(policy.warnings().size() == 1);
    CHECK_FALSE(connects(policy, ipv4("127.0.0.1", 80)));
}

TEST_CASE("the flag that would allow an address") {
    const Address four = ipv4("1.2.3.4", 80), six = ipv6("::1", 443);
    CHECK(Policy::net_flag("--allow-connect", four.get(), four.length) == "--allow-connect=1.2.3.4:80");
    CHECK(Policy::net_flag("--allow-listen", six.get(), six.length) == "--allow-listen=[::1]:443");
}
