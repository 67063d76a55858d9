// How much of what takes long is done: all of it with KVMSERVER_TESTS=all, as in scripts/nightly.sh, else a part, which
// is smaller in builds with AddressSanitizer.
#pragma once
#include <cstdlib>
#include <random>
#include <string_view>

namespace kvmserver::test {

inline bool all_tests() {
    const char* const wanted = std::getenv("KVMSERVER_TESTS");
    return wanted && std::string_view(wanted) == "all";
}

#if defined(__SANITIZE_ADDRESS__)
constexpr int kOneOf = 8;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr int kOneOf = 8;
#else
constexpr int kOneOf = 4;
#endif
#else
constexpr int kOneOf = 4;
#endif

// Of `n` repetitions with other values each time.
inline int amount(int n) { return all_tests() ? n : (n + kOneOf - 1) / kOneOf; }

// Of places that are 1, 2, 3...: the first one and how far it is to the next, so that in time each has its turn.
struct Places {
    int first = 1;
    int step = 1;
};
inline Places some_places() {
    return all_tests() ? Places{} : Places{1 + static_cast<int>(std::random_device{}() % kOneOf), kOneOf};
}

} // namespace kvmserver::test
