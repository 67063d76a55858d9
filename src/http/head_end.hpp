// Finds the end of a head that arrives in pieces. Refuses at once what no head may contain: a bare LF or CR, NUL and
// other control characters, or too many bytes. So the front does not wait for a peer that cannot send a valid head.
#pragma once
#include <cstddef>
#include <string_view>

#include "src/http/fault.hpp"

namespace kvmserver::http {

struct HeadLimits {
    std::size_t head_bytes = 64 * 1024;
    std::size_t target_bytes = 8 * 1024;
    std::size_t fields = 256;

    HeadLimits of_reply() const { return {head_bytes, head_bytes, fields}; } // a reply's first line has no target
};

class HeadEnd {
public:
    enum class State { more, found, bad };

    void reset() { *this = HeadEnd(); }
    // `bytes` is all of the head that has arrived. Bytes of earlier calls are not scanned again.
    State feed(std::string_view bytes, const HeadLimits& limits);

    std::size_t size() const { return seen_; } // size of the head with its empty line, once found
    const Fault& fault() const { return fault_; }

private:
    State fail(unsigned status, const char* code, const char* detail);
    std::size_t seen_ = 0;
    std::size_t line_ = 0; // characters in the current line
    bool first_line_ = true;
    bool after_cr_ = false;
    Fault fault_;
};

} // namespace kvmserver::http
