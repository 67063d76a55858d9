// The list of pieces that begins an upload: written, read, and refused when it is not sound.
#include "src/ops/delta.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/ops/child.hpp"
#include "src/store/errors.hpp"
#include "tests/catch.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/base/write.hpp"

using namespace kvmserver;
using ops::Delta;
using store::BadValue;

namespace {

constexpr std::uint64_t kTerabyte = std::uint64_t{1} << 40;

Digest digest(std::uint8_t with) {
    Digest digest;
    digest.bytes.fill(with);
    return digest;
}

// Two pieces of which only the second one, of 5 bytes, is sent.
Delta sample() { return {digest(9), {{digest(1), 300, false}, {digest(2), 5, true}}}; }

tinykvm::UniqueFd file_of(const std::string& bytes) {
    tinykvm::UniqueFd fd = ops::memory_file("delta");
    tinykvm::write_all(fd.get(), std::as_bytes(std::span(bytes)), "delta");
    return fd;
}

Delta read(const std::string& bytes) {
    std::uint64_t at = 0;
    return ops::read_delta(file_of(bytes).get(), bytes.size(), at);
}

std::string refusal_of(const std::string& bytes) {
    try {
        read(bytes);
    } catch (const BadValue& error) {
        return error.what();
    }
    return "";
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

} // namespace

TEST_CASE("a delta is read as it was written, and says where its bytes begin") {
    const std::string head = ops::encode_delta(sample()), bytes = head + "bytes";
    std::uint64_t at = 0;
    const Delta delta = ops::read_delta(file_of(bytes).get(), bytes.size(), at);
    CHECK(at == head.size());
    CHECK(delta.snapshot == digest(9));
    REQUIRE(delta.pieces.size() == 2);
    CHECK(delta.pieces[0].digest == digest(1));
    CHECK(delta.pieces[0].length == 300);
    CHECK_FALSE(delta.pieces[0].sent);
    CHECK(delta.pieces[1].digest == digest(2));
    CHECK(delta.pieces[1].length == 5);
    CHECK(delta.pieces[1].sent);
}

TEST_CASE("the bytes of a delta are as its format says") {
    const std::string head = ops::encode_delta(sample());
    REQUIRE(head.size() == 8 + 4 + 4 + 32 + 2 * 40);
    CHECK(head.substr(0, 16) == std::string("KVMDELTA\1\0\0\0\2\0\0\0", 16));
    CHECK(head.substr(80, 8) == std::string("\x2c\1\0\0\0\0\0\0", 8));
    CHECK(head.substr(120, 8) == std::string("\5\0\0\0\0\0\0\x80", 8));
}

TEST_CASE("a delta cut anywhere, or with something behind it, is refused") {
    const std::string bytes = ops::encode_delta(sample()) + "bytes";
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        CAPTURE(size);
        CHECK(says(refusal_of(bytes.substr(0, size)), "the upload is not a delta"));
    }
    CHECK(says(refusal_of(bytes + "x"), "its length is not that of its list and pieces"));
}

TEST_CASE("a delta of another version is refused") {
    std::string bytes = ops::encode_delta(sample()) + "bytes";
    bytes[8] = 2;
    CHECK(says(refusal_of(bytes), "version"));
}

TEST_CASE("a delta's impossible counts and lengths are refused before memory is taken for them") {
    std::string many = ops::encode_delta(sample()) + "bytes";
    many.replace(12, 4, std::string("\xff\xff\xff\xff", 4));
    CHECK(says(refusal_of(many), "its list of pieces is longer than it"));
    CHECK(says(refusal_of(ops::encode_delta({digest(9), {}})), "its list of pieces"));
    for (const std::uint64_t length : {std::uint64_t{0}, kTerabyte + 1, ~std::uint64_t{0} >> 1}) {
        CAPTURE(length);
        CHECK(says(refusal_of(ops::encode_delta({digest(9), {{digest(1), length, false}}})), "impossible length"));
    }
    const Delta together{digest(9), {{digest(1), kTerabyte, false}, {digest(2), kTerabyte, false}}};
    CHECK(says(refusal_of(ops::encode_delta(together)), "impossible length"));
}

TEST_CASE("a delta is told from a snapshot by its first bytes") {
    CHECK(ops::is_delta(file_of(ops::encode_delta(sample())).get()));
    for (const char* other : {"", "KVMDELT", "KVMSNAP1 and more"}) {
        CAPTURE(other);
        CHECK_FALSE(ops::is_delta(file_of(other).get()));
    }
}
