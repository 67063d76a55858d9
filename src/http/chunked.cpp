#include "src/http/chunked.hpp"

#include <algorithm>
#include <vector>

#include "src/http/fields.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::http {
namespace {

constexpr unsigned kMaxDigits = 15; // 60 bits: cannot overflow
constexpr unsigned kMaxExtension = 256;
constexpr std::size_t kMaxExtensions = 16 * 1024;
constexpr std::size_t kMaxTrailers = 8 * 1024;

} // namespace

void ChunkedBody::fail(const char* code, const char* detail) {
    fault_ = {400, code, detail};
    state_ = State::bad;
}

std::size_t ChunkedBody::feed(std::string_view bytes, std::string* payload) {
    std::size_t used = 0;
    while (used < bytes.size() && state_ != State::done && state_ != State::bad) {
        if (state_ == State::data) {
            const std::size_t take = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size() - used));
            if (payload)
                payload->append(bytes.substr(used, take));
            used += take;
            left_ -= take;
            payload_bytes_ += take;
            if (left_ == 0)
                state_ = State::data_cr;
            continue;
        }
        step(bytes[used]);
        if (state_ != State::bad)
            ++used;
    }
    return used;
}

void ChunkedBody::step(char c) {
    switch (state_) {
    case State::size_start:
        left_ = digits_ = line_ = 0;
        state_ = State::size;
        return size_digit(c);
    case State::size:
        if (c == ';') {
            state_ = State::extension;
            return;
        }
        if (c != '\r')
            return size_digit(c);
        state_ = State::size_lf;
        return;
    case State::extension:
        if (c == '\r') {
            state_ = State::size_lf;
            return;
        }
        if (++line_ > kMaxExtension || ++extensions_ > kMaxExtensions)
            return fail("bad-chunk", "The chunk extensions are too long.");
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f)
            return fail("bad-chunk", "A chunk extension holds a control character.");
        return;
    case State::size_lf:
        if (c != '\n')
            return fail("bad-chunk", "The line of a chunk's size does not end with CRLF.");
        state_ = left_ ? State::data : State::trailer;
        return;
    case State::data_cr:
        if (c != '\r')
            return fail("bad-chunk", "A chunk is longer than its size says.");
        state_ = State::data_lf;
        return;
    case State::data_lf:
        if (c != '\n')
            return fail("bad-chunk", "A chunk does not end with CRLF.");
        state_ = State::size_start;
        return;
    case State::trailer: return trailer_char(c);
    case State::trailer_lf:
        if (c != '\n')
            return fail("bad-trailer", "A CR in the trailers is not followed by LF.");
        return end_trailer_line();
    default: return;
    }
}

void ChunkedBody::size_digit(char c) {
    const int value = tinykvm::hex_digit(c);
    if (value < 0)
        return fail("bad-chunk", "The size of a chunk is not a hexadecimal number.");
    if (++digits_ > kMaxDigits)
        return fail("bad-chunk", "The size of a chunk has too many digits.");
    left_ = left_ << 4 | static_cast<unsigned>(value);
}

void ChunkedBody::trailer_char(char c) {
    if (++trailer_bytes_ > kMaxTrailers)
        return fail("bad-trailer", "The trailers are too long.");
    if (c == '\r')
        state_ = State::trailer_lf;
    else if (c == '\n')
        fail("bad-trailer", "A line of the trailers ends with LF alone.");
    else
        trailer_line_ += c;
}

void ChunkedBody::end_trailer_line() {
    if (trailer_line_.empty()) {
        state_ = State::done;
        return;
    }
    trailer_line_ += "\r\n";
    std::vector<Field> fields;
    if (const Fault fault = scan_fields(trailer_line_, 1, fields))
        return fail("bad-trailer", fault.detail);
    // RFC 9110 section 6.5.1: these are not allowed in trailers, since they would mislead a parser that merges trailers
    // into the headers.
    for (const char* name : {"content-length", "transfer-encoding", "host", "connection", "upgrade", "trailer"})
        if (equal_nocase(fields[0].name, name))
            return fail("bad-trailer", "A trailer has a name that trailers may not have.");
    trailer_line_.clear();
    state_ = State::trailer;
}

} // namespace kvmserver::http
