#include "src/common/file_stamp.hpp"

#include <chrono>

namespace kvmserver {

FileStamp FileStamp::of(const struct stat& file) {
    return {file.st_dev, file.st_ino, static_cast<std::uint64_t>(file.st_size), file.st_ctim.tv_sec,
            file.st_ctim.tv_nsec};
}

bool FileStamp::settled() const {
    using namespace std::chrono;
    constexpr milliseconds kTicks{100}, kCoarse{3000};
    const auto changed = std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanoseconds);
    return system_clock::now().time_since_epoch() - changed > (nanoseconds == 0 ? kCoarse : kTicks);
}

} // namespace kvmserver
