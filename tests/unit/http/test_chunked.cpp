// The chunked coding, split everywhere, and bodies in general.
#include "src/http/body.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::http;
using std::string;

namespace {

struct Fed {
    std::size_t used = 0;
    bool done = false;
    string payload, code;
};

Fed feed(const string& text, std::size_t step) {
    ChunkedBody body;
    Fed fed;
    while (fed.used < text.size() && !body.done() && !body.fault()) {
        const string piece = text.substr(fed.used, step);
        fed.used += body.feed(piece, &fed.payload);
    }
    fed.done = body.done();
    fed.code = body.fault().code;
    CHECK(body.payload_bytes() == fed.payload.size());
    return fed;
}

} // namespace

TEST_CASE("chunks") {
    struct Row {
        string text, payload;
    };
    const Row rows[] = {
        {"0\r\n\r\n", ""},
        {"000\r\n\r\n", ""},
        {"5\r\nhello\r\n0\r\n\r\n", "hello"},
        {"00000000000000A;x=\"y z\";q\r\n0123456789\r\n1\r\n\n\r\n0;last\r\nX-Sum: 1\r\nY:\r\n\r\n", "0123456789\n"},
        {"5 \r\n", "?"}, // refused below
    };
    for (const Row& row : rows) {
        for (std::size_t step = 1; step <= row.text.size() + 4; ++step) {
            CAPTURE(row.text, step);
            const Fed fed = feed(row.text + "GET ", step);
            if (row.payload == "?") {
                CHECK(fed.code == "bad-chunk");
                continue;
            }
            CHECK(fed.done);
            CHECK(fed.used == row.text.size());
            CHECK(fed.payload == row.payload);
        }
    }
}

TEST_CASE("chunks that are refused") {
    struct Row {
        string text, code;
    };
    const Row rows[] = {
        {"\r\n", "bad-chunk"},
        {";x\r\n", "bad-chunk"},
        {"g\r\n", "bad-chunk"},
        {"-1\r\n", "bad-chunk"},
        {"+1\r\n", "bad-chunk"},
        {" 1\r\n", "bad-chunk"},
        {"0x1\r\n", "bad-chunk"},
        {"1\n", "bad-chunk"},
        {"1\ra", "bad-chunk"},
        {"1;a\nb\r\n", "bad-chunk"},
        {"1;a\rb\r\n", "bad-chunk"},
        {string("1;a\0\r\n", 6), "bad-chunk"},
        {"1\r\nab\r\n", "bad-chunk"},
        {"1\r\na\n", "bad-chunk"},
        {"1\r\na\r0", "bad-chunk"},
        {"1000000000000000\r\n", "bad-chunk"},
        {"FFFFFFFFFFFFFFFFF\r\n", "bad-chunk"},
        {"0000000000000000\r\n", "bad-chunk"},
        {"1;" + string(300, 'x'), "bad-chunk"},
        {"0\r\nX: y\n", "bad-trailer"},
        {"0\r\nX: y\rz", "bad-trailer"},
        {"0\r\n X: y\r\n", "bad-trailer"},
        {"0\r\nX : y\r\n", "bad-trailer"},
        {"0\r\nX\r\n", "bad-trailer"},
        {string("0\r\nX: \0\r\n", 9), "bad-trailer"},
        {"0\r\nContent-Length: 5\r\n", "bad-trailer"},
        {"0\r\ntransfer-encoding: chunked\r\n", "bad-trailer"},
        {"0\r\nHost: b\r\n", "bad-trailer"},
        {"0\r\nX: " + string(9000, 'y'), "bad-trailer"},
    };
    for (const Row& row : rows) {
        for (const std::size_t step : {std::size_t{1}, std::size_t{3}, row.text.size()}) {
            CAPTURE(row.text, step);
            const Fed fed = feed(row.text, step);
            CHECK_FALSE(fed.done);
            CHECK(fed.code == row.code);
        }
    }
}

TEST_CASE("chunk extensions have a limit together") {
    ChunkedBody body;
    const string chunk = "1;" + string(200, 'x') + "\r\na\r\n";
    int chunks = 0;
    while (!body.fault() && chunks < 1000) {
        body.feed(chunk);
        ++chunks;
    }
    CHECK(chunks == 16 * 1024 / 200 + 1);
}

TEST_CASE("bodies of other framings") {
    Body none{Framing{}};
    CHECK(none.done());
    CHECK(none.feed("abc") == 0);
    Body five{Framing{BodyKind::length, 5}};
    CHECK(five.feed("abc") == 3);
    CHECK_FALSE(five.done());
    CHECK(five.left() == 2);
    CHECK(five.feed("defg") == 2);
    CHECK(five.done());
    CHECK(five.payload_bytes() == 5);
    Body open{Framing{BodyKind::until_close, 0}};
    CHECK(open.feed("abc") == 3);
    CHECK_FALSE(open.done());
}
