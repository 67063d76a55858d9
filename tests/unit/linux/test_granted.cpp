// What an operator grants bounds what permissions allow.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "tests/unit/linux/world.hpp"
#include "tinykvm/base/error.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

std::string why_not(const std::string& text) {
    try {
        parse_net_grant("allow-connect", text);
    } catch (const UserError& error) {
        CHECK(error.code() == ExitCode::usage);
        return error.what();
    }
    return "";
}

NetAddress address(const std::string& host, std::uint16_t port = 80) {
    NetAddress at = addresses_of(host).at(0);
    at.port = port;
    return at;
}

bool covers(const std::string& grant, const std::string& host, std::uint16_t port = 80) {
    return NetGrants({parse_net_grant("allow-connect", grant)}).covers(address(host, port));
}

// A folder that may be written to ("own"), one that may be read ("open"), and one that is nobody's concern
// ("secret").
struct Tree {
    TempFolder tmp;
    std::string own = tmp / "own", open = tmp / "open", secret = tmp / "secret";
    Tree() {
        for (const std::string& folder : {own, open, secret}) {
            fs::create_directory(folder);
            std::ofstream(folder + "/key") << "k";
        }
        fs::create_directory(tmp / "owner");
        std::ofstream(tmp / "owner/key") << "k";
    }
    Granted granted() const {
        Granted most;
        most.read = {open};
        most.write = {own};
        return most;
    }
};

int error_of(const Policy& policy, const std::string& path, int flags = O_RDONLY) {
    return policy.open(path, flags, 0644, {}).error;
}

Permissions everything() {
    Permissions all;
    all.all = true;
    all.always_own_folders = true;
    return all;
}

bool connects(const Policy& policy, const std::string& host, std::uint16_t port) {
    const NetAddress to = address(host, port);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::copy(to.bytes.begin(), to.bytes.end(), six.sin6_addr.s6_addr);
    return policy.may_connect(reinterpret_cast<const sockaddr*>(&six), sizeof six);
}

bool listens(const Policy& policy, const std::string& abstract) {
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    abstract.copy(un.sun_path + 1, abstract.size());
    return policy.may_listen(reinterpret_cast<const sockaddr*>(&un),
                             static_cast<socklen_t>(sizeof(sa_family_t) + 1 + abstract.size()));
}

} // namespace

TEST_CASE("network grants are parsed") {
    CHECK(why_not("").find("write *") != std::string::npos);
    CHECK(why_not("10.0.0.1/8").find("beyond its first 8") != std::string::npos);
    CHECK(why_not("10.0.0.0/33").find("0 to 32") != std::string::npos);
    CHECK(why_not("fd00::/129").find("0 to 128") != std::string::npos);
    CHECK(why_not("10.0.0.0/").find("0 to 32") != std::string::npos);
    CHECK(why_not("name/8").find("not an IP address") != std::string::npos);
    CHECK(why_not("1.2.3").find("write *") != std::string::npos);
    CHECK(why_not("*:65536").find("not a port") != std::string::npos);
    CHECK(why_not("[1.2.3.4]:80").find("IPv6") != std::string::npos);
    CHECK(why_not("unix:/a/../b").find("..") != std::string::npos);
    CHECK(why_not("unix:rel").find("unix:/PATH") != std::string::npos);
    CHECK(parse_net_grant("", "unix://run//x/").name == "/run/x");
    CHECK(parse_net_grant("", "[fd00::/8]:443").port == 443);
    CHECK(parse_net_grant("", "host:80").kind == NetGrant::Kind::own_host);
}

TEST_CASE("network grants cover ranges, at every bit") {
    CHECK(covers("*", "8.8.8.8"));
    CHECK(covers("*", "2001:db8::1"));
    CHECK(covers("*:80", "8.8.8.8"));
    CHECK(!covers("*:80", "8.8.8.8", 81));
    CHECK(covers("10.0.0.0/9", "10.127.255.255"));
    CHECK(!covers("10.0.0.0/9", "10.128.0.0"));
    CHECK(covers("10.0.0.0/8", "::ffff:10.1.2.3")); // the same address
    CHECK(!covers("0.0.0.0/0", "2001:db8::1"));
    CHECK(covers("fe80::/10", "febf::1"));
    CHECK(!covers("fe80::/10", "fec0::1"));
    CHECK(covers("10.0.0.1", "10.0.0.1"));
    CHECK(!covers("10.0.0.1", "10.0.0.2"));
    for (const char* own : {"127.0.0.1", "127.255.0.9", "::1"})
        CHECK(covers("host", own));
    CHECK(!covers("host", "192.0.2.1"));
    CHECK(!covers("unix:/run", "127.0.0.1"));
}

TEST_CASE("paths: both the permissions and the grant must allow") {
    Tree tree;
    const Policy policy(everything(), {}, {tree.granted()});
    CHECK(error_of(policy, tree.open + "/key") == 0);
    CHECK(error_of(policy, tree.open + "/key", O_RDWR) == EACCES);
    CHECK(error_of(policy, tree.own + "/key", O_RDWR) == 0);
    CHECK(error_of(policy, tree.own + "/new", O_WRONLY | O_CREAT) == 0);
    CHECK(error_of(policy, tree.secret + "/key") == ENOENT);
    CHECK(error_of(policy, tree.secret + "/key", O_WRONLY) == EACCES);
    CHECK(error_of(policy, tree.tmp / "owner/key") == ENOENT); // "own" is no beginning of "owner"
    CHECK(error_of(policy, tree.own + "/../secret/key") == ENOENT);
    CHECK(error_of(policy, "/etc/shadow") == ENOENT);
    CHECK(error_of(policy, "/dev/null", O_RDWR) == 0);
    CHECK(error_of(policy, "/proc/self/maps") == error_of(Policy(everything()), "/proc/self/maps"));

    Permissions little;
    little.read = {tree.open + "/key"};
    const Policy narrow(little, {}, {tree.granted()});
    CHECK(error_of(narrow, tree.open + "/key") == 0);
    CHECK(error_of(narrow, tree.own + "/key") == ENOENT); // granted, but not asked for

    Granted second;
    second.read = {tree.secret, tree.open};
    const Policy both(everything(), {}, {tree.granted(), second});
    CHECK(error_of(both, tree.open + "/key") == 0);
    CHECK(error_of(both, tree.own + "/key") == ENOENT);
    CHECK(error_of(both, tree.secret + "/key") == ENOENT);
}

TEST_CASE("a link that a program makes in its own folder leads to nothing more, by whichever permission") {
    Tree tree;
    fs::create_directory_symlink(tree.secret, tree.own + "/link");
    fs::create_symlink(tree.secret + "/key", tree.own + "/file");
    Permissions asked;
    SECTION("read") { asked.read = {tree.own + "/link", tree.own + "/file"}; }
    SECTION("write") { asked.write = {tree.own, tree.own + "/link"}; }
    SECTION("implied") { asked.implied_read = {tree.own + "/link", tree.secret}; }
    SECTION("everything") { asked.all = true; }
    SECTION("a volume") { asked.volumes = {{tree.own + "/link", tree.secret, true, true, false}}; }
    SECTION("a socket") { asked.listen = {{"unix:" + tree.own + "/link", 0}}; }
    Granted most = tree.granted();
    SECTION("a grant within a folder of the program's own") { // which is dropped: the one around it grants
                                                              // what is there
        asked.all = true;
        most.read->push_back(tree.own + "/link");
    }
    most.volumes = {{tree.own, "", true, true, false}};
    most.listen = {parse_net_grant("", "unix:" + tree.own)};
    const Policy policy(asked, {}, {most});
    for (const std::string& path : {tree.own + "/link/key", tree.own + "/file", tree.secret + "/key"}) {
        CHECK(error_of(policy, path) == ENOENT);
        CHECK(error_of(policy, path, O_RDWR) == EACCES);
    }
    CHECK(policy.socket_place(tree.own + "/link/sock", {}).error != 0);
}

TEST_CASE("a socket at a path is something written, where listening has no ceiling of its own") {
    Tree tree;
    Permissions asked;
    for (const std::string& folder : {tree.own, tree.open})
        asked.listen.push_back(parse_listen_rule("", "unix:" + folder));
    const Policy policy(asked, {}, {tree.granted()});
    CHECK(policy.socket_place(tree.own + "/sock", {}).error == 0);
    CHECK(policy.socket_place(tree.open + "/sock", {}).error == EACCES);
    Granted most = tree.granted();
    most.listen = {parse_net_grant("", "unix:" + tree.open)};
    const Policy other(asked, {}, {most});
    CHECK(other.socket_place(tree.open + "/sock", {}).error == 0);
    CHECK(other.socket_place(tree.own + "/sock", {}).error == EACCES);
}

TEST_CASE("volumes are granted by the folder on the host, whatever the guest calls it") {
    Tree tree;
    Permissions asked;
    Granted most = tree.granted();
    most.volumes = {{tree.open, "", true, false, false}};
    const auto with = [&](const std::string& host, const std::string& guest, bool write) {
        asked.volumes = {{host, guest, true, write, false}};
        return Policy(asked, {}, {most});
    };
    CHECK(error_of(with(tree.open, "/mnt", false), "/mnt/key") == 0);
    CHECK(error_of(with(tree.open, "/mnt", true), "/mnt/key") == 0);
    CHECK(error_of(with(tree.open, "/mnt", true), "/mnt/key", O_RDWR) == EACCES);
    CHECK(error_of(with(tree.secret, "/mnt", false), "/mnt/key") == ENOENT);
    CHECK(error_of(with("/", "/mnt", true), "/mnt" + tree.secret + "/key") == ENOENT);
    CHECK(error_of(with(tree.open + "/../secret", "/mnt", false), "/mnt/key") == ENOENT);
    // What is granted of the host's own files does not reach into what is mounted there.
    asked.write = {tree.own};
    CHECK(error_of(with(tree.open, tree.own, false), tree.own + "/key", O_RDWR) == EACCES);
    CHECK(error_of(with(tree.open, tree.own, false), tree.own + "/key") == 0);
    // Where only paths have a ceiling, it is that of volumes too.
    most.volumes.reset();
    CHECK(error_of(with(tree.secret, "/mnt", false), "/mnt/key") == ENOENT);
    CHECK(error_of(with(tree.own, "/mnt", true), "/mnt/key", O_RDWR) == 0);
    CHECK(error_of(with(tree.open, "/mnt", true), "/mnt/key", O_RDWR) == EACCES);
    // A second one at the same place would have the rights of one and the files of the other.
    asked.volumes = {{tree.open, "/mnt", true, false, false}, {tree.own, "/mnt", true, true, false}};
    CHECK_THROWS_AS(Policy(asked, {}, {most}), UserError);
}

TEST_CASE("addresses and abstract names: both must allow") {
    Permissions asked = everything();
    Granted most;
    most.connect = {parse_net_grant("", "*")};
    most.deny_connect.emplace(
        {parse_net_grant("", "host"), parse_net_grant("", "169.254.0.0/16"), parse_net_grant("", "10.0.0.0/8:22")});
    most.listen = {parse_net_grant("", "*"), parse_net_grant("", "unix:@mine")};
    const Policy policy(asked, {}, {most});
    CHECK(connects(policy, "192.0.2.1", 443));
    for (const char* own : {"127.0.0.1", "127.1.2.3", "::1", "::", "0.0.0.0", "::ffff:127.0.0.1", "169.254.169.254"})
        CHECK(!connects(policy, own, 80));
    CHECK(connects(policy, "10.0.0.1", 80));
    CHECK(!connects(policy, "10.0.0.1", 22));
    CHECK(listens(policy, "mine"));
    CHECK(!listens(policy, "yours"));
    CHECK(!policy.may_connect_abstract("@yours"));
    CHECK(Policy(asked).may_connect_abstract("@yours"));
    CHECK(policy.may_bind_ephemeral());
    Granted none;
    none.connect.emplace();
    none.listen.emplace();
    CHECK(!Policy(asked, {}, {none}).may_bind_ephemeral());
    CHECK(!connects(Policy(asked, {}, {none}), "192.0.2.1", 443));
    asked.all = false;
    asked.connect = {{"localhost", 80}};
    CHECK(!connects(Policy(asked, {}, {most}), "127.0.0.1", 80));
    CHECK(connects(Policy(asked), "127.0.0.1", 80));
}
