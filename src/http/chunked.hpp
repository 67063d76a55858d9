// Checks a body in chunked coding (RFC 9112 section 7.1). The bytes are forwarded unchanged.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/http/fault.hpp"

namespace kvmserver::http {

class ChunkedBody {
public:
    // Checks the next bytes. Returns how many belong to the body: fewer than given only if it is done or bad. Appends
    // the decoded bytes to `payload` unless that is null.
    std::size_t feed(std::string_view bytes, std::string* payload = nullptr);

    bool done() const { return state_ == State::done; }
    const Fault& fault() const { return fault_; }
    std::uint64_t payload_bytes() const { return payload_bytes_; }

private:
    enum class State { size_start, size, extension, size_lf, data, data_cr, data_lf, trailer, trailer_lf, done, bad };
    void step(char c);
    void size_digit(char c);
    void trailer_char(char c);
    void end_trailer_line();
    void fail(const char* code, const char* detail);

    State state_ = State::size_start;
    std::uint64_t left_ = 0; // of the chunk
    std::uint64_t payload_bytes_ = 0;
    unsigned digits_ = 0;
    unsigned line_ = 0;          // length of this chunk's extension
    std::size_t extensions_ = 0; // length of the extensions of all chunks
    std::size_t trailer_bytes_ = 0;
    std::string trailer_line_;
    Fault fault_;
};

} // namespace kvmserver::http
