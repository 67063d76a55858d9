// The name in a ClientHello, byte by byte.
#include "src/http/client_hello.hpp"

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/catch.hpp"

using kvmserver::http::kMaxHello;
using kvmserver::http::server_name_of;

namespace {

// As OpenSSL writes it.
std::string hello_for(const char* host) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(context.get()), SSL_free);
    BIO* const in = BIO_new(BIO_s_mem());
    BIO* const out = BIO_new(BIO_s_mem());
    SSL_set_bio(client.get(), in, out); // which frees both
    SSL_set_connect_state(client.get());
    if (host)
        SSL_set_tlsext_host_name(client.get(), host);
    SSL_do_handshake(client.get());
    char* bytes = nullptr;
    const long length = BIO_get_mem_data(out, &bytes);
    return {bytes, static_cast<std::size_t>(length)};
}

// The same message in records of `most` bytes.
std::string in_records(const std::string& hello, std::size_t most) {
    std::string cut;
    for (std::size_t at = 5; at < hello.size(); at += most) {
        const std::string part = hello.substr(at, most);
        cut += hello.substr(0, 3) + static_cast<char>(part.size() >> 8) + static_cast<char>(part.size()) + part;
    }
    return cut;
}

std::string shown(const std::optional<std::string>& name) { return name ? '"' + *name + '"' : "more"; }

} // namespace

TEST_CASE("the name that a TLS client asks for is found as soon as its message is complete") {
    const std::string hello = hello_for("Shop.Example.ORG");
    CHECK(shown(server_name_of(hello)) == "\"shop.example.org\"");
    CHECK(shown(server_name_of(hello + "what follows")) == "\"shop.example.org\"");
    for (std::size_t length = 0; length < hello.size(); ++length) {
        CAPTURE(length);
        REQUIRE(shown(server_name_of(hello.substr(0, length))) == "more");
    }
}

TEST_CASE("a message in several records is put together") {
    const std::string hello = hello_for("a.example");
    const std::size_t most = GENERATE(1, 2, 7, 100);
    const std::string cut = in_records(hello, most);
    CHECK(shown(server_name_of(cut)) == "\"a.example\"");
    for (std::size_t length = 0; length < cut.size(); ++length) {
        CAPTURE(most, length);
        REQUIRE(shown(server_name_of(cut.substr(0, length))) == "more");
    }
}

TEST_CASE("who asks for no host, or speaks no TLS, has no name") {
    CHECK(shown(server_name_of(hello_for(nullptr))) == "\"\"");
    for (const char* const text : {"GET / HTTP/1.1\r\n\r\n", "G", "\x16\x02", "\x15\x03\x01\x00\x02\x02\x28",
                                   "SSH-2.0-x\r\n", "\x16\x03\x01\x40\x01"}) {
        CAPTURE(text);
        CHECK(shown(server_name_of(text)) == "\"\"");
    }
    CHECK(shown(server_name_of(std::string("\x16\x03\x01\x00\x00", 5))) == "\"\"");     // an empty record
    CHECK(shown(server_name_of(std::string("\x16\x03\x01\x00\x05\x02", 6))) == "\"\""); // another message
    const std::string endless("\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9);               // a message of 16 MiB
    CHECK(shown(server_name_of(endless)) == "\"\"");
}

TEST_CASE("a name with other characters than a host's is none") {
    for (const char* const host : {"a b", "../etc", "a/b", "sh\xc3\xb6p.example", "a\nb"}) {
        CAPTURE(host);
        CHECK(shown(server_name_of(hello_for(host))) == "\"\"");
    }
}

TEST_CASE("no altered byte leads outside of the message, and what never ends is given up") {
    const std::string hello = hello_for("shop.example");
    for (std::size_t at = 0; at < hello.size(); ++at)
        for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
            std::string altered = hello;
            altered[at] = static_cast<char>(value);
            const auto name = server_name_of(altered); // the sanitizers look on
            if (name)
                CHECK(name->size() <= 253);
        }
    std::string tiny; // records of one byte each
    while (tiny.size() < kMaxHello)
        tiny += in_records(
            std::string("\x16\x03\x01\0\0", 5) + std::string("\x01\x00\x40\x00", 4) + std::string(100, 'x'), 1);
    CHECK(server_name_of(tiny).has_value());
}
