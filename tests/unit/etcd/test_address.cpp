// Addresses, credentials and base64.
#include "src/etcd/address.hpp"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "src/etcd/base64.hpp"
#include "src/etcd/credentials.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using namespace kvmserver::etcd;

TEST_CASE("an address of etcd names endpoints, a prefix and authorities") {
    const Address all = parse_address("etcd://a.example:2379,127.0.0.1:1,[::1]:65535/x/y/?tls=yes&ca=/etc/ca.pem");
    CHECK(all.endpoints ==
          std::vector<std::string>{"https://a.example:2379", "https://127.0.0.1:1", "https://[::1]:65535"});
    CHECK(all.prefix == "x/y/");
    CHECK(all.ca_file == "/etc/ca.pem");
    const Address least = parse_address("etcd://h:2379");
    CHECK(least.endpoints == std::vector<std::string>{"http://h:2379"});
    CHECK(least.prefix == "kvmserver/");
    CHECK(least.ca_file.empty());
    CHECK(parse_address("etcd://h:2379/?tls=no").prefix == "kvmserver/");
    CHECK(least.text() == "etcd at http://h:2379");
}

TEST_CASE("nonsense is no address of etcd") {
    for (const char* bad : {"",
                            "h:2379",
                            "http://h:2379",
                            "etcd://",
                            "etcd://h",
                            "etcd://h:",
                            "etcd://:2379",
                            "etcd://h:0",
                            "etcd://h:65536",
                            "etcd://h:23x",
                            "etcd://h:2379,",
                            "etcd://,h:2379",
                            "etcd://h:1,,g:1",
                            "etcd://h:1, g:1",
                            "etcd://h:1//x",
                            "etcd://h:1/x//y",
                            "etcd://h:1/a b",
                            "etcd://u:p@h:1",
                            "etcd://h:1?tls=maybe",
                            "etcd://h:1?tls=yes&ca=",
                            "etcd://h:1?ca=/x",
                            "etcd://h:1?x=1",
                            "etcd://[::1:2379",
                            "etcd://-h:1",
                            "etcd://h\n:1",
                            "etcd://h:1?tls"}) {
        CAPTURE(bad);
        try {
            parse_address(bad);
            FAIL("accepted");
        } catch (const tinykvm::UserError& error) {
            CHECK(error.code() == tinykvm::ExitCode::usage);
            CHECK(std::string(error.what()).find("write etcd://HOST:PORT") != std::string::npos);
        }
    }
    try {
        parse_address("etcd://user:hidden@h:1");
    } catch (const tinykvm::UserError& error) {
        CHECK(std::string(error.what()).find("hidden") == std::string::npos);
    }
}

TEST_CASE("credentials of etcd are one line, which others may not read") {
    const store::test::TempFolder folder;
    const std::string file = (folder / "credentials").string();
    const auto write = [&](const std::string& text, mode_t mode = 0600) {
        std::ofstream(file) << text;
        REQUIRE(::chmod(file.c_str(), mode) == 0);
    };
    const auto refused = [&] {
        try {
            (void)read_credentials(file);
        } catch (const tinykvm::UserError& error) {
            return std::string(error.what()).find("SECRET") == std::string::npos;
        }
        return false;
    };
    for (const char* good : {"USER:SEC:RET ok", "USER:SEC:RET ok\n", "USER:SEC:RET ok\r\n"}) {
        write(good, 0640);
        const Credentials found = read_credentials(file);
        CHECK(found.user == "USER");
        CHECK(found.password == "SEC:RET ok");
    }
    for (const char* bad :
         {"", "\n", "USER", "USER:", ":SECRET", "USER:SECRET\nmore\n", "USER:SECRET\x01", "\xff:SECRET"}) {
        CAPTURE(bad);
        write(bad);
        CHECK(refused());
    }
    write("USER:" + std::string(5000, 'x'));
    CHECK(refused());
    write("USER:SECRET", 0644);
    CHECK(refused());
    CHECK_THROWS_AS(read_credentials(file + ".no"), tinykvm::UserError);
    CHECK_THROWS_AS(read_credentials(folder.path().string()), tinykvm::UserError);
}

TEST_CASE("base64 is that of RFC 4648") {
    for (const auto& [bytes, text] :
         std::initializer_list<std::pair<std::string, std::string>>{{"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fy", "Znk="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foobar", "Zm9vYmFy"},
                                                                    {"\xfb\xff\xfe", "+//+"}}) {
        CHECK(to_base64(bytes) == text);
        CHECK(from_base64(text) == bytes);
    }
    std::string all;
    for (int i = 0; i < 256; ++i)
        all += static_cast<char>(i);
    CHECK(from_base64(to_base64(all)) == all);
    for (const char* bad : {"Z", "Zg", "Zg=", "Zg===", "Z===", "====", "Zm9v\n", "Zm-_", "Zg==Zg=="}) {
        CAPTURE(bad);
        CHECK_FALSE(from_base64(bad));
    }
}
