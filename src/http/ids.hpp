// Generates request ids and trace ids: unique, not secret. One object per thread.
#pragma once
#include <cstdint>
#include <string>

namespace kvmserver::http {

class Ids {
public:
    Ids();                    // throws HostError if getrandom() fails
    std::string request_id(); // 16 hexadecimal digits
    std::string trace_id();   // 32; of W3C Trace Context, as is the next. Never all zeros
    std::string span_id();    // 16

private:
    std::uint64_t next();
    std::uint64_t state_;
};

} // namespace kvmserver::http
