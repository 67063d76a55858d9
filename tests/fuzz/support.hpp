// What the libFuzzer programs share.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

namespace fuzz {

// What must hold for every input.
#define FUZZ_REQUIRE(condition)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "require: %s:%d: %s\n", __FILE__, __LINE__, #condition);                              \
            std::abort();                                                                                              \
        }                                                                                                              \
    } while (false)

// An input, taken apart from its beginning; all zeros behind its end.
class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

    bool empty() const { return rest_.empty(); }
    template <class T>
    T take() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        const std::size_t n = std::min(sizeof(T), rest_.size());
        if (n > 0)
            std::memcpy(&value, rest_.data(), n);
        rest_ = rest_.subspan(n);
        return value;
    }
    std::uint8_t byte() { return take<std::uint8_t>(); }
    // One of [0, most).
    std::size_t below(std::size_t most) { return (most <= 256 ? byte() : take<std::uint32_t>()) % most; }
    template <class T, std::size_t n>
    const T& one_of(const T (&choices)[n]) {
        return choices[below(n)];
    }
    std::span<const std::uint8_t> bytes(std::size_t most) {
        const auto part = rest_.first(std::min(most, rest_.size()));
        rest_ = rest_.subspan(part.size());
        return part;
    }
    std::string text(std::size_t most) {
        const auto part = bytes(most);
        return {reinterpret_cast<const char*>(part.data()), part.size()};
    }
    std::span<const std::uint8_t> rest() const { return rest_; }

private:
    std::span<const std::uint8_t> rest_;
};

} // namespace fuzz
