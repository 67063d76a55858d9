// Little-endian numbers in byte buffers.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "src/snapshot/format.hpp"

namespace kvmserver {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "guest and host are x86-64");

class ByteWriter {
public:
    template <std::unsigned_integral T>
    void put(T value) {
        put(std::as_bytes(std::span(&value, 1)));
    }
    void put(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
    std::span<const std::byte> bytes() const { return bytes_; }
    std::vector<std::byte> take() && { return std::move(bytes_); }

private:
    std::vector<std::byte> bytes_;
};

// Throws FormatError naming `what` instead of reading past the end.
class ByteReader {
public:
    ByteReader(std::span<const std::byte> bytes, const char* what) : rest_(bytes), what_(what) {}
    template <std::unsigned_integral T>
    T get() {
        T value;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    std::span<const std::byte> take(std::uint64_t count) {
        if (count > rest_.size())
            throw FormatError(std::string(what_) + " is inconsistent: it ends too early");
        const auto bytes = rest_.first(count);
        rest_ = rest_.subspan(count);
        return bytes;
    }
    std::size_t left() const { return rest_.size(); }

private:
    std::span<const std::byte> rest_;
    const char* what_;
};

} // namespace kvmserver
