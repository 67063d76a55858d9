// How much of what takes long is done: all of it with KVMSERVER_TESTS=all, as in scripts/nightly.sh, else a part.
#pragma once
#include <cstdlib>
#include <random>
#include <string_view>

namespace kvmserver::test {

inline bool all_tests() {
    const char* const wanted = std::getenv("KVMSERVER_TESTS");
    return wanted && std::string_view(wanted) == "all";
}

// Of `n` repetitions with other values each time.
inline int amount(int n) { return all_tests() ? n : (n + 3) / 4; }

// Of places that are 1, 2, 3...: the first one and how far it is to the next, so that in time each has its turn.
struct Places {
    int first = 1;
    int step = 1;
};
inline Places some_places() {
    constexpr int kStep = 4;
    return all_tests() ? Places{} : Places{1 + static_cast<int>(std::random_device{}() % kStep), kStep};
}

} // namespace kvmserver::test
