#include "src/store/clock.hpp"

#include <chrono>

namespace kvmserver::store {

std::int64_t now_ms() {
    using namespace std::chrono;
    return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

} // namespace kvmserver::store
