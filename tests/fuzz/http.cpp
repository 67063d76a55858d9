// libFuzzer: heads, chunked bodies and the beginnings of TLS connections of any bytes, whole and in pieces. Both ways
// must agree, and what leaves the front must read back as what came in.
#include <string>

#include "src/http/chunked.hpp"
#include "src/http/client_hello.hpp"
#include "src/http/rewrite.hpp"
#include "tests/fuzz/support.hpp"

using namespace kvmserver::http;

namespace {

// For what came as large as it may, and had fields of ours added.
constexpr HeadLimits kWider{.head_bytes = HeadLimits().head_bytes + 256, .fields = HeadLimits().fields + 2};

// The size of the head, or 0.
std::size_t head_size(std::string_view bytes, std::size_t step) {
    HeadEnd end;
    for (std::size_t have = 0; have < bytes.size();) {
        have = std::min(have + step, bytes.size());
        const auto state = end.feed(bytes.substr(0, have), {});
        if (state != HeadEnd::State::more)
            return state == HeadEnd::State::found ? end.size() : 0;
    }
    return 0;
}

void fuzz_request(const std::string& bytes) {
    const std::size_t size = head_size(bytes, bytes.size());
    FUZZ_REQUIRE(size == head_size(bytes, 1));
    RequestHead head, again;
    if (size == 0 || parse_request_head(std::string_view(bytes).substr(0, size), {}, head))
        return;
    std::string out;
    append_request(out, head, {});
    FUZZ_REQUIRE(head_size(out, 7) == out.size());
    FUZZ_REQUIRE(!parse_request_head(out, kWider, again));
    FUZZ_REQUIRE(again.method == head.method && again.target == head.target && again.host == head.host);
    FUZZ_REQUIRE(again.body.kind == head.body.kind && again.body.length == head.body.length);
    FUZZ_REQUIRE(again.upgrade == head.upgrade && (again.upgrade || !again.keep_alive));
}

void fuzz_reply(const std::string& bytes) {
    const std::size_t size = head_size(bytes, bytes.size());
    ReplyHead head, again;
    if (size == 0 || parse_reply_head(std::string_view(bytes).substr(0, size), {}, {}, head))
        return;
    std::string out;
    const bool chunked = head.body.kind == BodyKind::until_close;
    append_reply(out, head, ClientConnection::close, {.chunked = chunked});
    FUZZ_REQUIRE(head_size(out, 7) == out.size());
    FUZZ_REQUIRE(!parse_reply_head(out, kWider, {}, again));
    FUZZ_REQUIRE(again.status == head.status);
    FUZZ_REQUIRE(again.body.kind == (chunked ? BodyKind::chunked : head.body.kind) &&
                 again.body.length == head.body.length);
}

void fuzz_chunks(std::string_view bytes) {
    ChunkedBody whole, parts;
    std::string a, b;
    const std::size_t used = whole.feed(bytes, &a);
    std::size_t also = 0;
    while (also < bytes.size() && !parts.done() && !parts.fault())
        also += parts.feed(bytes.substr(also, 1), &b);
    FUZZ_REQUIRE(used == also && a == b && whole.done() == parts.done());
    FUZZ_REQUIRE(!(whole.done() && whole.fault()) && a.size() <= bytes.size());
}

// What is found does not depend on how much more has arrived.
void fuzz_hello(std::string_view bytes) {
    constexpr std::size_t kPieces = 600;
    bytes = bytes.substr(0, kMaxHello - 1);
    const auto name = server_name_of(bytes);
    for (std::size_t have = 0; have < std::min(bytes.size(), kPieces); ++have)
        if (const auto early = server_name_of(bytes.substr(0, have)))
            FUZZ_REQUIRE(early == name);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    const std::string bytes(reinterpret_cast<const char*>(data), size);
    fuzz_request(bytes);
    fuzz_reply(bytes);
    fuzz_chunks(bytes);
    fuzz_hello(bytes);
    return 0;
}
