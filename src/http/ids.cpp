#include "src/http/ids.hpp"

#include <sys/random.h>

#include "tinykvm/base/error.hpp"

namespace kvmserver::http {
namespace {
void append_hex(std::string& out, std::uint64_t value) {
    for (int shift = 60; shift >= 0; shift -= 4)
        out += "0123456789abcdef"[(value >> shift) & 15];
}
} // namespace

Ids::Ids() {
    if (getrandom(&state_, sizeof state_, 0) != sizeof state_)
        tinykvm::throw_errno("getrandom");
}

// splitmix64 (Steele, Lea, Flood 2014): a permutation of a counter, so one thread's ids never repeat.
std::uint64_t Ids::next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

std::string Ids::request_id() {
    std::string out;
    append_hex(out, next());
    return out;
}

std::string Ids::trace_id() {
    std::string out;
    out.reserve(32);
    append_hex(out, next());
    append_hex(out, next() | 1);
    return out;
}

std::string Ids::span_id() {
    std::string out;
    append_hex(out, next() | 1);
    return out;
}

} // namespace kvmserver::http
